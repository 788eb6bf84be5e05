"""Giving committed entries of the audit their place in the chain, after the fact.

Who writes an entry only notes it, in its own transaction; so writers neither wait for each other nor for this. A note
becomes visible with its entry, however late it commits, so none is passed over: the chain's order is the order in which
entries were seen. One process at a time does it, under a lock that ends with its transaction.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import asyncpg

from ..schemas.errors import StateError
from ..streams.database import CANNOT_CONNECT
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .chain import Link, link

logger = logging.getLogger("milepost")

#: Entries sealed in one transaction.
BATCH = 500
#: Seconds between two looks: one probe of an index, nearly always empty.
POLL = 1.0
_STATEMENT = 30.0


class Sql(Queries, file="chain.sql"):
    """Queries of sealing and of verifying."""

    try_lock: str
    head: str
    unsealed: str
    seal: str
    sealed: str
    waiting: str
    walk: str
    anchor: str
    inserted: str
    lost: str


async def seal(connection: asyncpg.Connection[Any], *, batch: int = BATCH) -> int:
    """Give at most `batch` entries their places, in a transaction of its own.

    Returns:
        How many; 0 also while another process is at it.
    """
    async with connection.transaction(isolation="read_committed"):
        if not await connection.fetchval(Sql.try_lock, timeout=_STATEMENT):
            return 0
        # Statements of their own: what they see is from after the lock.
        rows = await connection.fetch(Sql.unsealed, batch, timeout=_STATEMENT)
        if not rows:
            return 0
        head = await connection.fetchrow(Sql.head, timeout=_STATEMENT)
        links = list(link(None if head is None else Link(**dict(head)), rows))
        columns = ([getattr(one, name) for one in links] for name in ("n", "id", "at", "digest", "hash"))
        await connection.execute(Sql.seal, *columns, timeout=_STATEMENT)
        ids, instants = [row["id"] for row in rows], [row["at"] for row in rows]
        await connection.execute(Sql.sealed, ids, instants, timeout=_STATEMENT)
    return len(links)


class Sealer:
    """The part of the role upkeep that seals the audit; several processes may run it.

    Args:
        pool: Where the audit is.
    """

    name = "audit"

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._trouble: str | None = None
        self._done = 0

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop."""
        while not stop.asked:
            done = await self._turn()
            await stop.wait(0.0 if done == BATCH else POLL)

    async def _turn(self) -> int:
        try:
            async with self._pool.acquire(timeout=_STATEMENT) as connection:
                done = await seal(cast("asyncpg.Connection[Any]", connection))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, StateError, *CANNOT_CONNECT) as error:
            if self._trouble is None:
                logger.warning("audit: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return 0
        self._trouble = None
        self._done += done
        return done

    def health(self) -> Health:
        """Red while the database does not let it seal."""
        return Health(self._trouble is None, self._trouble or f"{self._done} entries sealed")
