"""A transaction that somebody forgot keeps every dead row: consuming costs the same.

The short form moves one partition's position as often as minutes of consuming do. MILEPOST_CHAOS=long consumes for
minutes with and without a held snapshot, and compares the rates.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from milepost.inbox.intake import Intake

from tests.support.inbox import Effects, consumer_of, intake_of, opened, record
from tests.support.outbox import connected

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
MINUTES = 3.0
MOVES = (
    "DO $$ BEGIN FOR k IN 1..4000 LOOP"
    " UPDATE milepost.consumer_position SET next_offset = next_offset; COMMIT;"
    " END LOOP; END $$"
)


@dataclass
class Books:
    """A consumer's intake, and how far it is."""

    intake: Intake
    effects: Effects
    offset: int = 0

    async def batch(self, size: int) -> float:
        """Consume new events; returns the seconds it took."""
        records = [record(n) for n in range(self.offset, self.offset + size)]
        self.offset += size
        began = time.perf_counter()
        await self.intake.handle(records)
        return time.perf_counter() - began

    async def cost(self, times: int = 40, enough: float = 0.0) -> float:
        """The least that a small batch costs; looked for ten times as long where the least so far is not enough.

        Other work on the machine makes a batch cost more, never less.
        """
        least = min([await self.batch(10) for _ in range(times)])
        for _ in range(9 * times if enough else 0):
            if least < enough:
                break
            least = min(least, await self.batch(10))
        return least

    async def rate(self, seconds: float) -> float:
        """Events per second, in batches of 50."""
        began, first = time.monotonic(), self.offset
        while time.monotonic() - began < seconds:
            await self.batch(50)
        return (self.offset - first) / (time.monotonic() - began)


@pytest.fixture
async def books(database_url: str) -> AsyncIterator[Books]:
    async with opened(database_url) as database:
        effects = Effects(database.pool)
        yield Books(intake_of(consumer_of("books", "t", effects.apply), database), effects)


async def test_minutes_of_positions(database_url: str, books: Books) -> None:
    async with connected(database_url, 2) as (holder, other):
        await books.cost(10)
        early = await books.cost()
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("SELECT 1")
            await other.execute(MOVES)
            bound = 1.1 * early + 0.001
            late = await books.cost(enough=bound)
        assert late < bound, (early, late)
    assert len(await books.effects.orders()) == books.offset


@pytest.mark.skipif(not LONG, reason="MILEPOST_CHAOS=long: takes minutes")
async def test_minutes_of_consuming(database_url: str, books: Books) -> None:
    async with connected(database_url) as (holder,):
        await books.rate(5)
        before = await books.rate(20)
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("SELECT 1")
            await books.rate(MINUTES * 60)
            held = await books.rate(20)
        after = await books.rate(20)
    print(f"events per second: {before:.0f} before, {held:.0f} under the held snapshot, {after:.0f} after")
    assert held > 0.9 * min(before, after), (before, held, after)
