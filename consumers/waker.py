"""The waker: announces what is due and finds work whose worker is gone. It reads and pushes wake_at, nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ..outbox.statements import partition_named
from ..sagas.facts import Stale
from ..schemas.errors import StateError
from ..schemas.messages import TimerMessage, timers_topic
from ..streams.lifecycle import Health, Stop
from .engine import DATABASE_ERRORS, Engine
from .handing import park
from .store import Sql

logger = logging.getLogger("milepost")

#: Rows taken per tick: after downtime every due row fires, so many in a transaction.
BATCH = 1000
#: How long no live process may have a run's definition, where the settings say nothing.
PARK_AFTER = timedelta(hours=1)
#: Pauses between ticks, in seconds: after a tick that fired something, and the longest one, up to which it doubles
#: while nothing is due. A timer is late by no more.
PAUSE_BUSY, PAUSE_IDLE = 0.01, 0.1
#: How often to look whether the lease of a process has ended, in seconds: what it ran waits for so much longer.
LOOK = 1.0


def _pause(fired: int, before: float) -> float:
    """Return the seconds until the next tick: none after a full one."""
    if fired >= BATCH:
        return 0.0
    return PAUSE_BUSY if fired else min(max(2 * before, PAUSE_BUSY), PAUSE_IDLE)


class Waker:
    """Writes a timer message for each row that is due.

    Args:
        engine: The service's engine.
        push: How far wake_at is pushed; a message that nobody acted on is written again after it.
        sweep_every: How often to look for steps whose worker is gone, beside whenever a lease has ended.
        park_after: How long no live process may have a run's definition before a person is told.
    """

    name = "waker"

    def __init__(
        self, engine: Engine, *, push: timedelta, sweep_every: timedelta, park_after: timedelta = PARK_AFTER
    ) -> None:
        self._engine = engine
        self._push = push
        self._sweep_every = sweep_every.total_seconds()
        self._park_after = park_after
        self._trouble: str | None = None
        self._stuck: str | None = None
        self._ended: datetime | None = None

    async def run(self, stop: Stop) -> None:
        """Tick until asked to stop."""
        clock = self._engine.changes.clock
        next_sweep = next_look = clock.monotonic()
        pause, fired = PAUSE_IDLE, 0
        while not stop.asked:
            fired = await self._fire(2 if fired >= BATCH else 1)
            if clock.monotonic() >= next_look:
                due = clock.monotonic() >= next_sweep
                await self._look(due)
                next_look = clock.monotonic() + min(LOOK, self._sweep_every)
                next_sweep = clock.monotonic() + self._sweep_every if due else next_sweep
            pause = _pause(fired, pause)
            await stop.wait(pause)

    async def _look(self, due: bool) -> None:
        """Look after processes that are gone: when one has just gone, and when it is time."""
        if await self._guarded(self.lost) or due:
            await self._guarded(self.sweep)
        if due:
            await self._guarded(self._park)

    async def _fire(self, ticks: int) -> int:
        """Tick so many times at once: they pass by each other's rows, and while one is flushed the other works."""
        return sum(await asyncio.gather(*(self._guarded(self.tick) for _ in range(ticks))))

    async def _guarded(self, act: Callable[[], Awaitable[int]]) -> int:
        try:
            done = await act()
        except (*DATABASE_ERRORS, StateError) as error:
            if self._trouble is None:
                logger.warning("waker: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return 0
        self._trouble = None
        return done

    async def tick(self) -> int:
        """Push every due row and write its timer message, in one statement.

        Returns:
            Number of messages written.

        Raises:
            StateError: MP410 when the outbox has no partition for today.
        """
        service = self._engine.changes.service
        async with self._engine.pool.acquire() as connection, connection.transaction():
            await connection.execute(Sql.wake_by_index)
            with partition_named():
                fired: int = await connection.fetchval(
                    Sql.wake_due, service, BATCH, self._push, timers_topic(service), TimerMessage.message_type
                )
        return fired

    async def lost(self) -> int:
        """Whether a lease of the service's processes has ended since this was last asked."""
        ended = await self._engine.pool.fetchval(Sql.lease_ended, self._engine.changes.service)
        new = ended is not None and (self._ended is None or ended > self._ended)
        self._ended = ended if new else self._ended
        return int(new)

    async def sweep(self) -> int:
        """Hand steps of dead workers to the state machine; then forget workers that nothing refers to.

        Returns:
            Number of steps found.
        """
        changes = self._engine.changes
        await self._note_timeline()
        stale: list[Any] = await self._engine.pool.fetch(
            Sql.stale_steps, changes.service, BATCH, changes.definitions.pins
        )
        # One run that cannot be changed must not keep the others from being found.
        problems = filter(None, await asyncio.gather(*map(self._take, stale)))
        self._stuck = next(problems, None)
        if not stale:
            await self._engine.pool.execute(Sql.forget_workers, changes.service)
        return len(stale)

    async def _note_timeline(self) -> None:
        """See that the database is another one than before: a standby, or a restored backup."""
        timeline = await self._engine.pool.fetchval(Sql.note_timeline)
        if timeline is not None:
            logger.warning(
                "MP323 the database has begun timeline %d; what its last commits said may be lost", timeline
            )

    async def _take(self, row: asyncpg.Record) -> str | None:
        """Take one step from a worker that is gone; what is wrong when that cannot be done."""
        fact = Stale(row["name"], row["fence"], row["lease_ended_at"], iteration=row["iteration"])
        try:
            await self._engine.change(row["run_id"], fact)
        except Exception as error:
            stuck = f"run {row['run_id']} could not be swept: {type(error).__name__}: {error}"
            logger.warning("waker: %s", stuck)
            return stuck
        return None

    async def _park(self) -> int:
        return await park(self._engine, self._park_after)

    def health(self) -> Health:
        """Red while the database does not answer."""
        trouble = self._trouble or self._stuck
        return Health(trouble is None, trouble or "ticking")
