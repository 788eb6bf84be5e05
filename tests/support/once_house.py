"""A service with a bank, and `once` in short, for tests of operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import (
    Milepost,
    Repeat,
)
from milepost.streams.database import Database

from tests.support.bank import Bank, Receipt, Refund
from tests.support.engine import settings_for


@dataclass
class House:
    """A service, its bank, and a shorthand for once."""

    service: Milepost
    bank: Bank
    database: Database
    seen: list[str] = field(default_factory=list)

    async def once(
        self,
        key: str = "o-1",
        *,
        repeat: Repeat = Repeat.SAFE,
        do: Callable[[str], Awaitable[Receipt]] | None = None,
        amount: int = 100,
        **more: Any,
    ) -> Receipt:
        """Refund an order."""

        async def pay(operation: str) -> Receipt:
            self.seen.append(operation)
            return await (do or self.bank.pay)(operation)

        given: dict[str, Any] = {
            "kind": "refund",
            "key": key,
            "request": Refund(order=key, amount=amount),
            "result": Receipt,
            "repeat": repeat,
            "do": pay,
            "probe": self.bank.ask if repeat is Repeat.ASK_FIRST else None,
            "settle": timedelta(0),
        }
        receipt: Receipt = await self.service.once(**{**given, **more})
        return receipt

    async def row(self, query: str = "SELECT * FROM milepost.operation") -> dict[str, Any]:
        """Return the one record."""
        (found,) = await self.database.pool.fetch(query)
        return dict(found)

    async def clock(self, later: str) -> None:
        """Move milepost.clock()."""
        await self.database.pool.execute(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
            f"$$ SELECT clock_timestamp() + interval '{later}' $$"
        )


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    settings = settings_for(database_url, lease=timedelta(seconds=30), max_result_bytes=1000)
    service, database = Milepost("once", settings=settings), Database(settings)
    await database.open()
    bank = Bank(database.pool, dedupes=True)
    await bank.open()
    try:
        yield House(service, bank, database)
    finally:
        await service.close()
        await database.close()


async def lost(key: str) -> Receipt:
    """An answer that never comes."""
    raise httpx.ReadTimeout("nothing came")


def loses_the_answer(bank: Bank) -> Callable[[str], Awaitable[Receipt]]:
    async def pay(key: str) -> Receipt:
        await bank.pay(key)
        raise httpx.ReadTimeout("nothing came")

    return pay
