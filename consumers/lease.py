"""The lease of one process: a row with an expiry by the database's clock, renewed at a third and every two seconds.

A lease is long, so that a slow database does not take work from a process that lives. Who is gone is to be seen sooner:
so the row says when it was renewed last.

The holder judges its own lease by elapsed time from before the renewal was sent, so that it always thinks it ends
earlier than the database does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import asyncpg

from ..schemas.ids import Clock, Ids
from ..streams.lifecycle import Health, Stop
from .engine import DATABASE_ERRORS
from .store import Sql

logger = logging.getLogger("milepost")


#: How long a stopping worker may take, after the grace time, to hand back what it was cancelled in, in seconds.
HAND_BACK = 3.0


#: Longest time between two renewals, in seconds: a process of whose lease less was heard is silent (recovery/ages.py).
RENEW = 2.0


class LeaseLost(Exception):
    """This process's lease has ended: nothing may be begun, and what runs is cancelled."""


class Lease:
    """The lease of a process; also the role that renews it.

    Args:
        pool: Database.
        clock: For elapsed time.
        ids: A lost lease is replaced under a new id.
        duration: How long it holds without renewal.
    """

    name = "lease"

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        clock: Clock,
        ids: Ids,
        duration: timedelta,
        *,
        service: str,
        process: str,
        roles: Sequence[str],
        queues: Sequence[str],
        definitions: Sequence[str],
        pins: Sequence[str],
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._ids = ids
        self._duration = duration
        self._row = (service, process, list(roles), list(queues), list(definitions), list(pins))
        self._id = ids.new()
        self._ends = float("-inf")
        self._taken = False
        self._alone = False
        self._lost: list[Callable[[], None]] = []
        self._released = anyio.Event()
        self._until: float | None = None

    @property
    def id(self) -> UUID:
        """The id that claims are made under."""
        return self._id

    @property
    def alone(self) -> bool:
        """Whether no other process of the service had a lease when this one was renewed last."""
        return self._alone

    def held(self, worker: UUID | None = None) -> bool:
        """Whether the lease still holds, by this process's own reckoning.

        Args:
            worker: The id that a step was claimed under; a lease that was lost and taken anew has another one.
        """
        return self._clock.monotonic() < self._ends and worker in (None, self._id)

    def check(self, worker: UUID | None) -> None:
        """Raise LeaseLost when the lease of that id has ended; called right before anything leaves this process."""
        if not self.held(worker):
            raise LeaseLost

    def on_lost(self, call: Callable[[], None]) -> None:
        """Register what to do when the lease is lost."""
        self._lost.append(call)

    async def take(self) -> None:
        """Insert the lease row under a new id."""
        before = self._clock.monotonic()
        self._id = self._ids.new()
        async with self._pool.acquire() as connection:
            await connection.execute(Sql.take_lease, self._id, *self._row, self._duration)
        self._ends = before + self._duration.total_seconds()
        self._taken, self._alone = True, False

    async def renew(self) -> bool:
        """Extend the lease; False when it had already ended in the database."""
        before = self._clock.monotonic()
        async with self._pool.acquire() as connection:
            alone = await connection.fetchval(Sql.renew_lease, self._id, self._duration)
        if alone is None:
            return False
        self._alone = alone
        self._ends = before + self._duration.total_seconds()
        return True

    async def release(self) -> None:
        """End the lease now, so that nobody waits for it to run out."""
        self._ends = float("-inf")
        async with self._pool.acquire() as connection:
            await connection.execute(Sql.end_lease, self._id)

    def finished(self) -> None:
        """Said by the workers when nothing of theirs runs any more: the lease may go."""
        self._released.set()

    async def run(self, stop: Stop) -> None:
        """Keep the lease until the workers have finished after a stop, or the grace time is over."""
        pause = min(self._duration.total_seconds() / 3, RENEW)
        while not self._released.is_set():
            await self._keep(self._duration.total_seconds() / 3)
            with anyio.move_on_after(pause if self.held() else min(pause, 0.5)):
                await self._released.wait()
            if stop.asked and stop.remaining() <= 0 and self._overdue():
                break
        with anyio.move_on_after(2, shield=True):
            with suppress(*DATABASE_ERRORS):
                await self.release()

    def _overdue(self) -> bool:
        """Whether the workers have not even handed back in the time that they have after the grace time."""
        now = self._clock.monotonic()
        self._until = self._until or now + HAND_BACK + 1.0
        return now >= self._until

    async def _keep(self, bound: float) -> None:
        try:
            with anyio.fail_after(bound):
                if self._taken and not await self.renew():
                    self._lose()
                if not self._taken:
                    await self.take()
        except DATABASE_ERRORS as error:
            # A TimeoutError has no text of its own.
            words = str(error) or f"the database did not answer within {bound:g} s"
            logger.warning("lease of this process not renewed: %s: %s", type(error).__name__, words)
        if self._taken and not self.held():
            self._lose()

    def _lose(self) -> None:
        self._taken = False
        self._ends = float("-inf")
        logger.warning(
            "MP303 the lease of this process ran out; its steps are cancelled and settled by others"
        )
        for call in self._lost:
            call()

    def health(self) -> Health:
        """Red while the lease does not hold."""
        return Health(self.held(), "lease held" if self.held() else "lease lost; waiting for the database")
