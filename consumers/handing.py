"""Messages that reach a process which cannot decide about their run, because it has another version of the saga.

Which process a message reaches is Kafka's choice, and it would choose the same one again. So the message is put down in
the database, and whoever has the definition looks there. When nobody has had it for a while, a person is told: the run
is parked. That is a mark, not a state, for nobody without the definition may decide anything about the run; it goes
away as soon as somebody has the definition again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from ..schemas.messages import ResumeMessage, TimerMessage, WorkMessage
from ..schemas.states import Priority
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .engine import DATABASE_ERRORS, Engine, Stopping, will_pass
from .replies import Reply

logger = logging.getLogger("milepost")

#: Messages looked up at once.
BATCH = 100
#: Seconds between two looks: one probe of an index that is nearly always empty.
POLL = 0.5
_KEY = ("run_id", "kind", "step", "iteration")
#: How far the row of a message that is handed over is pushed.
PUSH = timedelta(minutes=5)

Message = WorkMessage | ResumeMessage | TimerMessage | Reply
#: Acts on a message of a queue ('' for none) and a run of this priority; returns when it is taken.
Act = Callable[[Message, str, Priority], Awaitable[None]]


class Sql(Queries, file="versions.sql"):
    """Queries about versions."""

    hand_over: str
    hand_over_reply: str
    handed: str
    settle_handed: str
    put_off_handed: str
    park: str
    unpark: str
    open_runs: str
    live_definitions: str
    note_refusal: str
    register_definition: str


async def hand_over(engine: Engine, message: Message) -> bool:
    """Put a message down for another process, if this one cannot decide about its run.

    Returns:
        Whether it was put down; False when the run is known here, gone or final.
    """
    if isinstance(message, Reply):
        return await _hand_over_reply(engine, message)
    kind = {WorkMessage: "work", ResumeMessage: "resume", TimerMessage: "timer"}[type(message)]
    generation = 0 if isinstance(message, WorkMessage) else message.generation
    changes = engine.changes
    count = await engine.pool.fetchval(
        Sql.hand_over,
        message.run,
        kind,
        message.step or "",
        message.iteration,
        generation,
        changes.service,
        changes.definitions.pins,
        PUSH,
    )
    return bool(count)


async def _hand_over_reply(engine: Engine, reply: Reply) -> bool:
    changes, fact = engine.changes, reply.fact
    handed = await engine.pool.fetchval(
        Sql.hand_over_reply,
        reply.run,
        fact.step,
        fact.iteration,
        fact.direction,
        changes.service,
        changes.definitions.pins,
        reply.as_json(),
    )
    return bool(handed)


async def park(engine: Engine, after: timedelta, batch: int = 1000) -> int:
    """Tell a person of the runs whose definition no live process has had for so long.

    Returns:
        Number of runs parked now.
    """
    parked: int = await engine.pool.fetchval(Sql.park, engine.changes.service, after, batch)
    if parked:
        logger.error(
            "%d run(s) of %s parked: for %s no live process has had their definition. They go on when one has; "
            "`milepost worklist` names them",
            parked,
            engine.changes.service,
            after,
        )
    return parked


async def unpark(connection: asyncpg.Connection[Any], run: UUID, by: str, reason: str) -> str | None:
    """Have a parked run looked for again; returns its state, None when it is not parked."""
    state: str | None = await connection.fetchval(Sql.unpark, run, by, reason)
    return state


class HandedOver:
    """Takes what was handed over and this process can decide about.

    Args:
        engine: The service's engine.
        name: Name of the part.
        acts: What to do with messages, by kind.
        queues: Queues that this process works for.
    """

    def __init__(self, engine: Engine, name: str, acts: Mapping[str, Act], queues: Sequence[str]) -> None:
        self.name = name
        self._engine = engine
        self._acts = acts
        self._queues = list(queues)
        self._trouble: str | None = None
        self._done = 0

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop."""
        while not stop.asked:
            taken = 0
            try:
                taken = await self.turn()
                self._trouble = None
            except (*DATABASE_ERRORS, StateError) as error:
                if self._trouble is None:
                    logger.warning("%s: %s: %s; trying again", self.name, type(error).__name__, error)
                self._trouble = f"{type(error).__name__}: {error}"
            await stop.wait(0.0 if taken >= BATCH else POLL)

    async def turn(self) -> int:
        """Act on what lies there, and then take it away; a crash in between repeats a message, which is harmless.

        Returns:
            Number of messages taken.
        """
        changes = self._engine.changes
        rows = await self._engine.pool.fetch(
            Sql.handed, changes.service, changes.definitions.pins, list(self._acts), self._queues, BATCH
        )
        results = await asyncio.gather(*map(self._act, rows), return_exceptions=True)
        done, stuck = [], []
        for row, result in zip(rows, results, strict=True):
            if result is None:
                done.append(row)
            elif not isinstance(result, Exception):
                raise result
            else:
                logger.warning("%s: a message stays: %s: %s", self.name, type(result).__name__, result)
                stuck.extend([] if _passes(result) else [row])
        if done:
            await self._engine.pool.execute(Sql.settle_handed, *_columns(done, *_KEY, "n"))
        if stuck:
            await self._engine.pool.execute(Sql.put_off_handed, *_columns(stuck, *_KEY))
        self._done += len(done)
        return len(done)

    async def _act(self, row: asyncpg.Record) -> None:
        await self._acts[row["kind"]](message_of(row), row["queue"], Priority(row["priority"]))

    def health(self) -> Health:
        """Red while the database does not answer."""
        return Health(self._trouble is None, self._trouble or f"{self._done} taken")


def _passes(error: Exception) -> bool:
    """Whether the trouble is not the message's own."""
    return isinstance(error, Stopping) or (isinstance(error, DATABASE_ERRORS) and will_pass(error))


def _columns(rows: Sequence[asyncpg.Record], *names: str) -> list[list[Any]]:
    return [[row[name] for row in rows] for name in names]


def message_of(row: asyncpg.Record) -> Message:
    """Return the message that was handed over."""
    if row["kind"] in {"work", "compensation"}:
        saga, version = row["pin"].partition("#")[0].rsplit("/", 1)
        return WorkMessage(
            run=row["run_id"],
            saga=saga,
            definition=int(version),
            step=row["step"],
            iteration=row["iteration"],
        )
    if row["kind"] == "reply":
        return Reply.from_json(row["run_id"], row["payload"])
    if row["kind"] == "resume":
        return ResumeMessage(
            run=row["run_id"], step=row["step"], iteration=row["iteration"], generation=row["generation"]
        )
    return TimerMessage(
        run=row["run_id"],
        step=row["step"] or None,
        iteration=row["iteration"],
        generation=row["generation"],
    )
