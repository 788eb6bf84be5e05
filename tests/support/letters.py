"""Letters of consumers in tests: a handler that can be broken and mended, and looks at what is parked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import asyncpg
from milepost.inbox import asking
from milepost.inbox.consumer import Consumer
from milepost.inbox.redrive import Redriver
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database

from tests.support.inbox import IDS, Effects, Paid, nothing_published, record

ONCE = Retry(attempts=1, first=timedelta(milliseconds=1))
LETTERS = """
    SELECT n, status, code, attempts, held_key, resolved_by, message, id, "offset" FROM milepost.dead_letter ORDER BY n
"""


@dataclass
class Broken:
    """A handler that fails for some orders until it is mended."""

    effects: Effects
    orders: set[str] = field(default_factory=set)

    async def apply(self, event: Paid, tx: Transaction) -> None:
        """Write the effect, then fail if the order is broken."""
        await self.effects.apply(event, tx)
        if event.order in self.orders:
            raise ValueError(f"{event.order} is broken")


def keyed(n: int, key: bytes | None, *, body: Any = None, **more: Any) -> Record:
    """Return the record at offset `n` with a key."""
    return replace(record(n, body=body, **more), key=key)


def redriver_of(consumer: Consumer, database: Database) -> Redriver:
    """Return a redriver on the machine's clock."""
    return Redriver([consumer], database, nothing_published, clock=SystemClock(), ids=IDS)


async def drained(redriver: Redriver) -> None:
    """Let a redriver work until nothing is its turn."""
    while await redriver.once():
        pass


async def redrive(database: Database, n: int, *, by: str = "ann") -> asking.Answer:
    """Ask for a letter as the command line does."""
    async with database.pool.acquire() as connection:
        return await asking.redrive(raw(connection), n, by=by, reason="mended", ids=IDS)


async def ignore(database: Database, n: int, *, by: str = "ann") -> asking.Answer:
    """Ignore a letter as the command line does."""
    async with database.pool.acquire() as connection:
        return await asking.ignore(raw(connection), n, by=by, reason="not needed", ids=IDS)


def raw(connection: Any) -> asyncpg.Connection[Any]:
    """Return a pooled connection as what it stands for."""
    found: asyncpg.Connection[Any] = connection
    return found


async def states(database: Database) -> list[tuple[str, str]]:
    """Return status and code of every letter, in order."""
    return [(row["status"], row["code"]) for row in await database.pool.fetch(LETTERS)]


async def holds(database: Database) -> list[bytes]:
    """Return the keys that are held."""
    return [row["key"] for row in await database.pool.fetch("SELECT key FROM milepost.hold ORDER BY key")]
