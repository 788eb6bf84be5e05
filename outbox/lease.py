"""Who relays: one row per outbox, held by the clock of the database and counted down by our own."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.ids import Clock
from .store import Sql

logger = logging.getLogger("milepost")

#: Part of the lease that is left unused at its end, for what is still on its way to the broker.
_MARGIN = 0.1
#: What a database that is away, slow or restarting raises; asyncpg says InternalClientError where a connection broke
#: in the middle of a cancelled statement.
DATABASE_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class LeaseLost(Exception):
    """The lease could not be renewed in time, or somebody else has it: nothing more may be sent."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease is about.

    Attributes:
        outbox: Name of the outbox.
        owner: This relay.
        length: How long the lease lasts without renewal.
    """

    outbox: str
    owner: UUID
    length: timedelta


class Lease:
    """A lease that was taken; it counts as over before the database lets somebody else have it.

    Args:
        pool: Where it is renewed.
        terms: What it is about.
        epoch: Rises with every taking; fences what the holder writes.
        asked_at: Monotonic seconds from before the statement that took it was sent.
        skew: What the database's clock was ahead of ours, within the time of that statement.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        terms: Terms,
        epoch: int,
        asked_at: float,
        *,
        clock: Clock,
        skew: timedelta = timedelta(0),
    ) -> None:
        self._pool = pool
        self._terms = terms
        self._clock = clock
        self._until = asked_at
        self._lost = False
        self.epoch = epoch
        self.skew = skew
        self._extend(asked_at)

    def remaining(self) -> float:
        """Seconds in which records may still be sent; 0 or less when it is over."""
        return -1.0 if self._lost else self._until - self._clock.monotonic()

    def check(self) -> None:
        """Refuse to go on without the lease.

        Raises:
            LeaseLost: It is over.
        """
        if self.remaining() <= 0:
            raise LeaseLost

    async def keep(self) -> None:
        """Renew at a third of the lease until cancelled, or until it is lost."""
        third = self._terms.length.total_seconds() / 3
        while self.remaining() > 0:
            await asyncio.sleep(min(third, max(self.remaining() / 3, 0.01)))
            await self._renew(third)

    async def release(self) -> None:
        """Give the lease up, so that a standby takes over at once; needs at most two seconds."""
        self._lost = True
        try:
            async with asyncio.timeout(2.0):
                await self._pool.execute(
                    Sql.release_lease, self._terms.outbox, self._terms.owner, self.epoch, timeout=2.0
                )
        except DATABASE_ERRORS as error:
            logger.info("relay: the lease was not given back (%s); it ends by itself", error)

    async def _renew(self, within: float) -> None:
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(within):
                renewed = await self._pool.fetchval(
                    Sql.renew_lease,
                    self._terms.outbox,
                    self._terms.owner,
                    self.epoch,
                    self._terms.length,
                    timeout=within,
                )
        except DATABASE_ERRORS as error:
            logger.debug("relay: the lease was not renewed: %s", error)
            return
        if renewed:
            self._extend(asked_at)
        else:
            self._lost = True

    def _extend(self, asked_at: float) -> None:
        self._until = asked_at + self._terms.length.total_seconds() * (1 - _MARGIN)


async def take_lease(pool: asyncpg.Pool[Any], terms: Terms, *, clock: Clock) -> Lease | None:
    """Take the lease if nobody holds it.

    Returns:
        The lease, or None while somebody else holds it.
    """
    await pool.execute(Sql.ensure_lease, terms.outbox, timeout=10.0)
    asked_at = clock.monotonic()
    taken = await pool.fetchrow(Sql.take_lease, terms.outbox, terms.owner, terms.length, timeout=10.0)
    if taken is None:
        return None
    skew = taken["at"] - clock.now()
    return Lease(pool, terms, taken["epoch"], asked_at, clock=clock, skew=skew)
