"""A bank that keeps a ledger in a table of its own, committed apart from everything of Milepost's."""

from __future__ import annotations

from typing import Any

import asyncpg
from milepost import Absent, Found, Probe
from pydantic import BaseModel

LEDGER = (
    "CREATE TABLE IF NOT EXISTS bank (n bigserial, what text NOT NULL, key text NOT NULL, amount integer)"
)


class Refund(BaseModel):
    """What is asked for."""

    order: str
    amount: int = 100
    note: str | None = None
    tags: set[str] = set()


class Receipt(BaseModel):
    """What the bank answers."""

    resource_type: str = "refund"
    resource_id: str
    amount: int


class Bank:
    """Counts calls, effects and questions by key.

    Args:
        pool: Where its ledger is.
        dedupes: Whether a second call under one key has no second effect.
    """

    def __init__(self, pool: asyncpg.Pool[Any], *, dedupes: bool) -> None:
        self.pool = pool
        self.dedupes = dedupes

    async def open(self) -> None:
        """Make the ledger."""
        await self.pool.execute(LEDGER)

    async def pay(self, key: str, amount: int = 100) -> Receipt:
        """Pay, once per key where the bank dedupes."""
        await self.note("call", key)
        if not (self.dedupes and await self.count("effect", key)):
            await self.note("effect", key, amount)
        return Receipt(resource_id=f"r-{key[:8]}", amount=amount)

    async def ask(self, key: str) -> Probe[Receipt]:
        """Say whether it was paid."""
        await self.note("question", key)
        row = await self.pool.fetchrow("SELECT amount FROM bank WHERE what = 'effect' AND key = $1", key)
        return Absent() if row is None else Found(Receipt(resource_id=f"r-{key[:8]}", amount=row["amount"]))

    async def note(self, what: str, key: str, amount: int | None = None) -> None:
        """Write a line."""
        await self.pool.execute("INSERT INTO bank (what, key, amount) VALUES ($1, $2, $3)", what, key, amount)

    async def count(self, what: str, key: str | None = None) -> int:
        """Count lines."""
        query = "SELECT count(*) FROM bank WHERE what = $1 AND ($2::text IS NULL OR key = $2)"
        found: int = await self.pool.fetchval(query, what, key)
        return found

    async def counts(self) -> tuple[int, int, int]:
        """Return calls, effects and questions."""
        return await self.count("call"), await self.count("effect"), await self.count("question")
