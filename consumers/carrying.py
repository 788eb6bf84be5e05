"""Carrying out what persons asked for: decision and answer are stored in one transaction, so both happen or neither.

A process that dies in between leaves the request open, and another one carries it out. A request for a definition that
this process does not have stays open for one that has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..recovery.proposals import rests_on
from ..sagas.facts import Act
from ..sagas.model import Decision, Fan, Run
from ..sagas.resuming import Checked
from ..schemas.errors import StateError
from ..schemas.states import HELD_STEP_STATES, StepKind, StepState
from ..streams import measures
from ..streams.lifecycle import Health, Stop
from ..streams.metrics import meters
from .changes import Change
from .engine import DATABASE_ERRORS, Engine, tell
from .handing import unpark
from .orchestrator import trace_wait
from .requests import Sql
from .resuming import verdict
from .saying import said
from .seconding import held_for_second

logger = logging.getLogger("milepost")

#: Requests looked up at once.
BATCH = 100
#: Seconds between two looks: one probe of a partial index, nearly always empty.
POLL = 0.5

_GONE = "the run is gone: its details are no longer kept"
_LOOKED_FOR = "its definition is looked for again; it goes on as soon as a process has it"
_LIVE = HELD_STEP_STATES | {StepState.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets.

    Attributes:
        accepted: Whether it was carried out.
        text: What followed, or why not.
        before: Of an accepted one, the states that the run and the step had.
        after: And those that they have now.
    """

    accepted: bool
    text: str
    before: Mapping[str, object]
    after: Mapping[str, object]


class Wish:
    """A request as a fact about the run that was loaded; none where the step was tried since the person looked.

    Args:
        row: The request.
    """

    def __init__(self, row: asyncpg.Record) -> None:
        self._row = row
        self.moved = False
        self.checked: Checked | None = None
        self.stale = False
        self.changed = False

    @property
    def problem(self) -> str:
        """Why it is not a fact about the run as it is now, '' where it is."""
        if self.moved:
            return f"{self._row['step']} has been tried since you looked. Look again, and decide on what is there now"
        if self.changed:
            return (
                "the run has changed since that was decided on. Look again, and decide on what is there now"
            )
        return ""

    def __call__(self, run: Run) -> Act | None:
        """Return the fact."""
        row = self._row
        step = None if row["step"] is None else run.step(row["step"], row["iteration"])
        self.moved = row["fence"] is not None and step is not None and step.fence != row["fence"]
        self.stale = self.checked is not None and self.checked.version != run.version
        self.changed = row["run_version"] is not None and row["run_version"] != run.version
        if row["rests_on"] is not None and step is not None:
            now = rests_on(run.state, step.state, fence=step.fence, probes=step.probes)
            self.changed = now != row["rests_on"]
        if self.moved or self.stale or self.changed:
            return None
        return Act(
            what=row["what"],
            by=row["by"],
            reason=row["reason"],
            step=row["step"],
            result=None if row["result"] is None else json.loads(row["result"]),
            undo=bool(row["undo"]),
            did_not_happen=row["did_not_happen"],
            budget=None if row["budget"] is None else json.loads(row["budget"]),
            iteration=row["iteration"],
            checked=self.checked,
            generation=row["generation"],
            hash=row["hash"],
            roles=frozenset(row["roles"]),
            asker=row["asker"],
        )


class Carrier:
    """The part of the role orchestrator that carries requests out.

    Args:
        engine: The service's engine.
        max_result_bytes: Largest result, in bytes of JSON.
    """

    name = "requests"

    def __init__(self, engine: Engine, *, max_result_bytes: int) -> None:
        self._engine = engine
        self._max_result_bytes = max_result_bytes
        self._trouble: str | None = None
        self._stuck: str | None = None
        self._told = set[UUID]()
        self._done = 0

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop."""
        while not stop.asked:
            answered = await self._guarded()
            await stop.wait(0.0 if answered >= BATCH else POLL)

    async def _guarded(self) -> int:
        try:
            done = await self.turn()
        except (*DATABASE_ERRORS, StateError) as error:
            if self._trouble is None:
                logger.warning("requests: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return 0
        self._trouble = None
        return done

    async def turn(self) -> int:
        """Carry out what is open, each in a transaction of its own.

        Returns:
            Number of requests answered.
        """
        changes = self._engine.changes
        rows = await self._engine.pool.fetch(
            Sql.open_requests, changes.service, changes.definitions.pins, BATCH
        )
        stuck, done = None, 0
        for row in rows:
            try:
                done += await self.carry_out(row["id"]) is not None
            except Exception as error:
                # One request that cannot be carried out must not keep the others from it.
                stuck = f"request {row['id']} could not be carried out: {type(error).__name__}: {error}"
                if row["id"] not in self._told:
                    logger.warning("requests: %s; trying again", stuck)
                self._told.add(row["id"])
        self._stuck = stuck
        self._told &= {row["id"] for row in rows}
        self._done += done
        return done

    async def carry_out(self, request: UUID) -> Answer | None:
        """Decide on a request, and store decision and answer together.

        Returns:
            The answer; None when somebody else is at it, it has been answered, or it is not for this process.
        """
        change = None
        async with self._engine.pool.acquire() as proxy, proxy.transaction(isolation="read_committed"):
            connection = cast("asyncpg.Connection[Any]", proxy)
            row = await connection.fetchrow(Sql.take_request, request)
            if row is None:
                return None
            answer, change = await self._decided(connection, row)
            if answer is None:
                return None
            await connection.execute(
                Sql.answer_request,
                request,
                "ACCEPTED" if answer.accepted else "REFUSED",
                answer.text,
                json.dumps(answer.before),
                json.dumps(answer.after),
            )
        tell(change)
        trace_wait(change)
        if (found := meters()) is not None:
            outcome = "accepted" if answer.accepted else "refused"
            found.add(measures.ACTS, (self._engine.changes.service, row["what"], outcome))
        logger.info("requests: %s by %s: %s", row["what"], row["by"], answer.text)
        return answer

    async def _decided(
        self, connection: asyncpg.Connection[Any], row: asyncpg.Record
    ) -> tuple[Answer | None, Change | None]:
        impossible = self._impossible(row)
        if impossible:
            return Answer(False, impossible, {}, {}), None
        if row["what"] == "resume":
            state = await unpark(connection, row["run_id"], row["by"], row["reason"])
            if state is not None:
                return Answer(True, _LOOKED_FOR, {"run": state}, {"run": state}), None
        wish = Wish(row)
        if await held_for_second(connection, self._engine.changes, row, wish):
            return None, None
        found = await verdict(connection, self._engine.changes, row, wish)
        change = None
        if not isinstance(found, bool):  # else a worker looks first, and a later turn sees what it has found
            wish.checked = found
            change = await self._engine.changes.apply(connection, row["run_id"], wish)
        problem = wish.problem
        if problem:
            return Answer(False, problem, {}, {}), None
        return (None, None) if change is None else (answered(row, change), change)

    def _impossible(self, row: asyncpg.Record) -> str:
        if not row["has_run"]:
            return _GONE
        size = len((row["result"] or "").encode())
        if size > self._max_result_bytes:
            return f"the result is {size} bytes of JSON, and {self._max_result_bytes} are stored at most"
        return ""

    def health(self) -> Health:
        """Red while the database does not answer, or a request cannot be carried out."""
        trouble = self._trouble or self._stuck
        return Health(trouble is None, trouble or f"{self._done} requests answered")


def answered(row: asyncpg.Record, change: Change) -> Answer:
    """Put in words what became of a request."""
    decision = change.decision
    if decision.answer != "changed" or decision.reason:
        return Answer(False, decision.reason, {}, {})
    after = _states(decision.run, row)
    if row["what"] in {"approve", "reject"}:
        return Answer(True, *said(row, decision, _states(change.before.run, row), after))
    text = _cancelled(decision) if row["what"] == "cancel" else _moved(row, after)
    return Answer(True, text, _states(change.before.run, row), after)


def _states(run: Run, row: asyncpg.Record) -> dict[str, str]:
    step = None if row["step"] is None else run.step(row["step"], row["iteration"])
    states = {"run": run.state.value}
    return states if step is None else {**states, "step": step.state.value}


def _moved(row: asyncpg.Record, after: Mapping[str, str]) -> str:
    step = f"{row['step']} {after['step']}, " if "step" in after else ""
    return f"{step}run {after['run']}"


def _cancelled(decision: Decision) -> str:
    """Say what was done already, and what is under way, so that whoever cancels knows what it costs."""
    steps = [step for step in decision.run.steps if step.kind is not StepKind.UNDO]
    done = [step.name for step in steps if step.state is StepState.SUCCEEDED]
    live = [step.name for step in steps if step.state in _LIVE]
    live += [_spread(step.name, step.fan) for step in steps if step.fan and step.state is StepState.WAITING]
    words = f"{len(done)} step{'' if len(done) == 1 else 's'} ({', '.join(done)})" if done else "nothing"
    under_way = f"; under way: {', '.join(live)}" if live else ""
    return f"{decision.run.state.value}; done: {words}{under_way}"


def _spread(name: str, fan: Fan) -> str:
    """Name a fan-out with how many of its items are known to have succeeded: their effects have happened."""
    return f"{name} ({fan.succeeded} of {fan.total} items done)"
