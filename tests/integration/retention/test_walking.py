"""Walks beside people who write: nobody waits, and of several processes one walks."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import asyncpg
from milepost.schemas.ids import SystemClock

from tests.support.outbox import connected
from tests.support.retained import days, retention, stop
from tests.support.retained_rows import INBOX, POSITION, connection
from tests.support.waiting import until

__all__ = ["connection"]


async def test_it_needs_no_more_rights_than_other_roles(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    name = f"milepost_test_{secrets.token_hex(6)}"
    await connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE milepost_runtime")
    try:
        await connection.execute(POSITION, "c", 5_000)
        await connection.execute(INBOX, "c", "APPLIED", days(99), 10)
        await retention(f"postgresql://{name}@{database_url.rpartition('@')[2]}").tidy(stop())
        assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 0
    finally:
        await connection.execute(f"DROP ROLE {name}")


async def test_of_several_processes_one_walks_each_hour(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(POSITION, "c", 50_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 20_000)
    several = [retention(database_url, every=timedelta(hours=1)) for _ in range(3)]
    await asyncio.gather(*(one.tidy(stop()) for one in several))
    assert sorted(one.removed.get("inbox", 0) for one in several) == [0, 0, 20_000]
    await connection.execute(INBOX, "c", "APPLIED", days(99), 10)
    await several[0].tidy(stop())
    assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 10, "not so soon"
    # At the same instant, without the schedule: each row goes once, and nobody waits for ever.
    await connection.execute(INBOX, "c", "APPLIED", days(99), 20_000)
    both = [retention(database_url) for _ in range(2)]
    await asyncio.gather(*(one.tidy(stop()) for one in both))
    assert sum(one.removed.get("inbox", 0) for one in both) == 20_010


async def test_writers_never_wait_for_a_long_purge(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    """Interleaving 11, of rows: inserts and updates beside a purge that does all it has to, under a short timeout."""
    await connection.execute(POSITION, "c", 500_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 60_000)
    await connection.execute(INBOX, "c", "APPLIED", days(1), 2_000)
    one, over = retention(database_url), asyncio.Event()
    worst, writes = 0.0, 0

    async def write() -> None:
        nonlocal worst, writes
        clock = SystemClock()
        async with connected(database_url) as (writer,):
            await writer.execute("SET lock_timeout = '500ms'")
            while not over.is_set():
                began = clock.monotonic()
                async with writer.transaction():
                    await writer.execute(INBOX, "w", "APPLIED", days(0), 20)
                    await writer.execute(
                        "UPDATE milepost.inbox SET outcome = outcome WHERE consumer = 'c' AND at > now() - interval"
                        " '2 days' AND \"offset\" = 7"
                    )
                    await writer.execute(
                        "INSERT INTO milepost.consumer_position AS p (consumer, topic, partition, next_offset)"
                        " VALUES ('w', 't', 0, 1) ON CONFLICT (consumer, topic, partition)"
                        " DO UPDATE SET next_offset = p.next_offset + 1"
                    )
                worst, writes = max(worst, clock.monotonic() - began), writes + 1

    writing = asyncio.create_task(write())
    await until(lambda: writes > 3)
    await one.tidy(stop())
    during = writes
    over.set()
    await writing
    assert one.removed["inbox"] == 60_000 and during > 20
    assert worst < 2.0, f"a write took {worst:.2f} s"


async def test_a_row_that_somebody_holds_is_left_for_the_next_walk(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(POSITION, "c", 500_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 30_000)
    async with connected(database_url) as (other,):
        transaction = other.transaction()
        await transaction.start()
        await other.execute('SELECT FROM milepost.inbox WHERE "offset" = 3 FOR UPDATE')
        await retention(database_url).tidy(stop())
        left = await connection.fetchval("SELECT count(*) FROM milepost.inbox")
        assert 1 <= left < 10_000, "the others of its stretch only"
        await transaction.rollback()
    await retention(database_url).tidy(stop())
    assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 0
