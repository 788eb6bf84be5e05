"""What a step asks while it runs: whether it should stop, and whether it is still this process's.

The runs are read again only while steps run here, over the index of who holds what: every second while some step asks
`should_stop`, else as often as the lease is renewed. The lease never waits for that: it is a statement of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
from pydantic import BaseModel

from ..sagas.codec import canonical_json, encode
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import Clock
from ..schemas.states import StepKind, StepState
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .engine import DATABASE_ERRORS, will_pass
from .lease import Lease, LeaseLost

if TYPE_CHECKING:
    from .calls import Call

logger = logging.getLogger("milepost")

#: Largest progress of a try, in bytes of JSON: it is read with the run whenever something is decided.
MAX_PROGRESS_BYTES = 8_192
#: How soon a step that asks is told of a cancel, in seconds.
LOOK = 1.0
#: Pause between tries to store a heartbeat while the database is away, in seconds.
_AGAIN = 0.2
#: Longest time for one look, in seconds.
_STATEMENT = 10.0


class StepTaken(StateError):
    """MP370: the step was taken from this process; whoever has it now must not be disturbed."""


class Sql(Queries, file="pulse.sql"):
    """Queries of this module."""

    stopping_runs: str
    beat: str
    beat_progress: str
    beat_spending: str


class Pulse:
    """Answers `should_stop` and `heartbeat` for the steps of one process; also the role that looks.

    Args:
        pool: Where runs live.
        lease: Steps are held under its id.
        clock: For elapsed time.
        stopping: Whether this process was asked to stop.
        every: How often to look when no step asks.
    """

    name = "pulse"

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        lease: Lease,
        clock: Clock,
        stopping: Callable[[], bool],
        *,
        every: timedelta,
    ) -> None:
        self._pool = pool
        self._lease = lease
        self._clock = clock
        self._process_stops = stopping
        self._every = every.total_seconds()
        self._running = 0
        self._asked = False
        self._looked = float("-inf")
        self._stopping: frozenset[UUID] = frozenset()
        self._trouble = ""

    def begun(self) -> None:
        """Say that a user's function runs."""
        self._running += 1

    def ended(self) -> None:
        """Say that it runs no more."""
        self._running -= 1

    def should_stop(self, call: Call) -> bool:
        """Whether the process stops, or the run does and what runs is a try of its step.

        An undo, and a call that settles what became of an earlier try, are never stopped by a cancel.
        """
        self._asked = True
        return self._process_stops() or (
            call.step.state is StepState.RUNNING and call.run.id in self._stopping
        )

    async def beat(self, call: Call, progress: BaseModel | None) -> None:
        """Store the progress of a try, and hear whether it is still this process's and should stop.

        Args:
            call: The try that beats.
            progress: What the next try is to know; None leaves what was said before.

        Raises:
            StepTaken: MP370 when somebody else has the step, or it is over. Nothing was written.
            UsageError: MP371 when the progress is too large, MP372 where there is none, MP342 when it cannot be stored.
        """
        said = None if progress is None else _encoded(call, progress)
        stops = await self._say(call, said)
        if stops is None:
            raise _taken(call)
        await self._keep(call)
        if stops:
            self._stopping |= {call.run.id}

    async def _keep(self, call: Call) -> None:
        """Store what the try has spent so far, so that it counts should the process die."""
        spent, step = call.purse.spent, call.step
        if spent is None:
            return
        said = json.dumps({"fence": step.fence, "spent": spent})
        await self._pool.execute(
            Sql.beat_spending,
            call.run.id,
            step.name,
            step.iteration,
            step.fence,
            step.worker,
            said,
            timeout=_STATEMENT,
        )

    async def _say(self, call: Call, said: str | None) -> bool | None:
        """Ask the database until it answers, as long as the lease holds."""
        step = call.step
        which = (call.run.id, step.name, step.iteration, step.fence, step.worker)
        while True:
            try:
                self._lease.check(step.worker)
            except LeaseLost as error:
                raise _taken(call) from error
            try:
                if said is None:
                    stops = await self._pool.fetchval(Sql.beat, *which, timeout=_STATEMENT)
                else:
                    stops = await self._pool.fetchval(Sql.beat_progress, *which, said, timeout=_STATEMENT)
                return None if stops is None else bool(stops)
            except DATABASE_ERRORS as error:
                if not will_pass(error):
                    raise
                logger.warning("%s: heartbeat not stored yet: %s: %s", step.name, type(error).__name__, error)
            await asyncio.sleep(_AGAIN)

    async def run(self, stop: Stop) -> None:
        """Look as often as somebody wants to know, until the process stops; then every step is told so anyway."""
        while not stop.asked:
            if self._running and (self._asked or self._clock.monotonic() - self._looked >= self._every):
                await self._look_patiently()
            await stop.wait(LOOK)

    async def look(self) -> None:
        """Read which of the runs that have a step running here are stopping."""
        self._asked = False
        rows = await self._pool.fetch(Sql.stopping_runs, self._lease.id, timeout=_STATEMENT)
        self._stopping = frozenset(row["run_id"] for row in rows)
        self._looked = self._clock.monotonic()

    async def _look_patiently(self) -> None:
        try:
            await self.look()
            self._trouble = ""
        except DATABASE_ERRORS as error:
            if not self._trouble:
                logger.warning("cancels not seen: %s: %s. Looking again.", type(error).__name__, error)
            self._trouble = f"cancels not seen: {type(error).__name__}"

    def health(self) -> Health:
        """Green also while it cannot look: a cancel waits for the step's end then, as always."""
        return Health(True, self._trouble or f"{self._running} calls running")


def _encoded(call: Call, progress: BaseModel) -> str:
    place = f"{call.definition.title}, step {call.step.name}: progress"
    if call.step.kind is StepKind.TX or (call.is_settling and call.node.probe is not None):
        raise UsageError(
            "MP372",
            f"{place} can be kept by a step or an undo only. What a transactional step has done is rolled back when it "
            "fails, and a probe only asks: call heartbeat() without progress there.",
        )
    said = canonical_json(encode(type(progress), progress, place))
    if len(said) > MAX_PROGRESS_BYTES:
        raise UsageError(
            "MP371",
            f"{place} is {len(said)} bytes of JSON, and {MAX_PROGRESS_BYTES} are kept at most. Say how far the step "
            "has come (a number, a cursor), and keep the data elsewhere.",
        )
    return said.decode()


def _taken(call: Call) -> StepTaken:
    return StepTaken(
        "MP370",
        f"{call.run.saga}/{call.run.key}, step {call.step.name}, try {call.step.attempt}: the step is no longer this "
        "process's: its lease or the time of the try ended, or the step is over. Stop now; whoever has it goes on.",
    )
