"""The lease of one process: a row with an expiry by the database's clock, renewed at a third.

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
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._ids = ids
        self._duration = duration
        self._row = (service, process, list(roles), list(queues), list(definitions))
        self._id = ids.new()
        self._ends = float("-inf")
        self._taken = False
        self._lost: list[Callable[[], None]] = []
        self._released = anyio.Event()

    @property
    def id(self) -> UUID:
        """The id that claims are made under."""
        return self._id

    def held(self) -> bool:
        """Whether the lease still holds, by this process's own reckoning."""
        return self._clock.monotonic() < self._ends

    def check(self) -> None:
        """Raise LeaseLost when the lease has ended; called right before anything leaves this process."""
        if not self.held():
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
        self._taken = True

    async def renew(self) -> bool:
        """Extend the lease; False when it had already ended in the database."""
        before = self._clock.monotonic()
        async with self._pool.acquire() as connection:
            renewed = await connection.fetchval(Sql.renew_lease, self._id, self._duration)
        if renewed is None:
            return False
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
        pause = self._duration.total_seconds() / 3
        while not self._released.is_set():
            await self._keep(pause)
            with anyio.move_on_after(pause if self.held() else min(pause, 0.5)):
                await self._released.wait()
            if stop.asked and stop.remaining() <= 0:
                break
        with anyio.move_on_after(2, shield=True):
            with suppress(*DATABASE_ERRORS):
                await self.release()

    async def _keep(self, bound: float) -> None:
        try:
            with anyio.fail_after(bound):
                if self._taken and not await self.renew():
                    self._lose()
                if not self._taken:
                    await self.take()
        except DATABASE_ERRORS as error:
            logger.warning("lease of this process not renewed: %s: %s", type(error).__name__, error)
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
