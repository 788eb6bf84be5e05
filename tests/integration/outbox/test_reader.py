"""Reading by the difference of two snapshots: a row counts when its transaction is seen to have committed."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from milepost.outbox.log import Reader
from milepost.outbox.position import Page, Position

from tests.support.outbox import Noted, connected, publish_noted


def seqs(found: Page | Position) -> list[int]:
    assert isinstance(found, Page), found
    return [row[0] for row in found.rows]


def reader(connection: asyncpg.Connection[Any], position: Position | None = None, **options: Any) -> Reader:
    return Reader(connection, position or Position(), timeout=20, **options)


async def rest(reading: Reader) -> tuple[list[int], Position]:
    """Read until there is nothing; returns the numbers and the last position."""
    found: list[int] = []
    while isinstance(page := await reading.read(), Page):
        found += seqs(page)
    return found, page


def notes(count: int, key: str = "k", size: int = 0) -> list[Noted]:
    return [Noted(key=key, n=n, text="x" * size) for n in range(count)]


async def test_a_lower_number_that_commits_late_is_sent_late(database_url: str) -> None:
    async with connected(database_url, 3) as (early, late, mine):
        reading = reader(mine)
        slow = early.transaction()
        await slow.start()
        await publish_noted(early, "t", notes(1))  # takes number 1 and does not commit
        await publish_noted(late, "t", notes(1))
        assert seqs(await reading.read()) == [2]
        assert isinstance(await reading.read(), Position)
        await slow.commit()
        assert seqs(await reading.read()) == [1]
        assert isinstance(await reading.read(), Position)


async def test_a_hole_that_never_fills_stalls_nothing(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, mine):
        reading = reader(mine)
        with pytest.raises(ZeroDivisionError):
            async with writer.transaction():
                await publish_noted(writer, "t", notes(3))
                raise ZeroDivisionError
        await publish_noted(writer, "t", notes(1))
        assert await rest(reading) == ([4], (await rest(reading))[1])


@pytest.mark.parametrize("held", [2, 30], ids=["few late rows", "many late rows"])
async def test_pages_of_a_large_tick_are_in_order_and_complete(
    database_url: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.outbox.log._FEW", 10)
    async with connected(database_url, 3) as (early, writer, mine):
        slow = early.transaction()
        await slow.start()
        await publish_noted(early, "t", notes(held))
        await publish_noted(writer, "t", notes(5))
        reading = reader(mine, page_rows=7)
        assert seqs(await reading.read()) == list(range(held + 1, held + 6))
        for _ in range(10):
            await publish_noted(writer, "t", notes(4))
        await publish_noted(early, "t", notes(1))
        await slow.commit()
        last = held + 5 + 41
        first = await reading.read()
        assert isinstance(first, Page) and len(first.rows) == 7 and first.behind == held + 41 - 7
        await publish_noted(writer, "t", notes(1))  # of a later tick
        found, position = await rest(reading)
        expected = [*range(1, held + 1), *range(held + 6, last + 1)]
        assert seqs(first) + found == [*expected, last + 1]
        assert position.settled


async def test_a_page_is_bounded_in_bytes(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, mine):
        await publish_noted(writer, "t", notes(20, size=10_000))
        reading = reader(mine, page_bytes=35_000)
        pages = []
        while isinstance(page := await reading.read(), Page):
            pages.append(len(page.rows))
        assert sum(pages) == 20
        assert max(pages) <= 4
        await publish_noted(writer, "t", notes(1, size=50_000))
        assert len(seqs(await reading.read())) == 1, "a single row over the bound still comes"


async def test_a_stored_position_goes_on_in_the_middle(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, mine):
        await publish_noted(writer, "t", notes(25))
        reading = reader(mine, page_rows=10)
        first = await reading.read()
        assert isinstance(first, Page)
        await publish_noted(writer, "t", notes(2))
        assert (await rest(reader(mine, first.after, page_rows=10)))[0] == list(range(11, 28))
        assert (await rest(reader(mine, first.before, page_rows=10)))[0] == list(range(1, 28))


async def test_no_transaction_stays_open_between_pages(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, mine):
        await publish_noted(writer, "t", notes(25))
        reading = reader(mine, page_rows=10)
        await reading.read()
        pid = mine.get_server_pid()
        assert await writer.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", pid) == "idle"
        assert await writer.fetchval("SELECT backend_xmin FROM pg_stat_activity WHERE pid = $1", pid) is None


async def test_rows_of_yesterdays_partition_come_too(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, mine):
        await publish_noted(writer, "t", notes(2))
        await writer.execute(
            "INSERT INTO milepost.outbox (id, topic, aggregatetype, type, created_at)"
            " VALUES (gen_random_uuid(), 't', 't', 't', clock_timestamp() - interval '1 day')"
        )
        await publish_noted(writer, "t", notes(2))
        assert (await rest(reader(mine, page_rows=2)))[0] == [1, 2, 3, 4, 5]
