"""Partitions come a week ahead and leave without blocking a publish; only what is sent may go."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.outbox.log import PositionLog
from milepost.outbox.position import Position
from milepost.outbox.upkeep import Upkeep
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

from tests.support.outbox import CLOCK, Noted, connected, publish_noted, settings
from tests.support.waiting import until

OLD = 20


def upkeep(url: str, **more: Any) -> Upkeep:
    return Upkeep(Database(settings(url, keep_outbox=timedelta(days=7), **more)))


def stop() -> Stop:
    return Stop(CLOCK, timedelta(seconds=5))


async def make_old(connection: asyncpg.Connection[Any], rows: int = 3) -> str:
    """Attach a partition of twenty days ago with rows in it; returns its name."""
    found = await connection.fetchrow(
        "SELECT * FROM milepost.partition_of('outbox', clock_timestamp() - make_interval(days => $1))", OLD
    )
    assert found is not None
    name, low, high = found
    await connection.execute(f"CREATE TABLE milepost.{name} (LIKE milepost.outbox INCLUDING ALL)")
    await connection.execute(
        f"ALTER TABLE milepost.outbox ATTACH PARTITION milepost.{name} FOR VALUES FROM ('{low}') TO ('{high}')"
    )
    await add_old(connection, rows)
    return str(name)


async def add_old(connection: asyncpg.Connection[Any], rows: int) -> None:
    await connection.execute(
        "INSERT INTO milepost.outbox (id, topic, aggregatetype, type, created_at)"
        " SELECT gen_random_uuid(), 't', 't', 't', clock_timestamp() - make_interval(days => $1)"
        " FROM generate_series(1, $2::int)",
        OLD,
        rows,
    )


async def sent_so_far(connection: asyncpg.Connection[Any]) -> None:
    """Store a position behind everything that is committed now."""
    epoch = await connection.fetchval("SELECT count(*) + 1 FROM milepost.outbox_position")
    log = PositionLog(connection, "outbox", epoch, timeout=5)
    await log.load()
    # Transactions of other databases on the server count in a snapshot too.
    await until(
        lambda: connection.fetchval(
            "SELECT pg_snapshot_xmin(pg_current_snapshot()) > max(xid::text::bigint)::text::xid8 FROM milepost.outbox"
        ),
        what="older transactions to end",
    )
    now = await connection.fetchval("SELECT pg_current_snapshot()")
    await log.write(Position(now, now))


async def exists(connection: asyncpg.Connection[Any], name: str) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass('milepost.' || $1) IS NOT NULL", name))


async def attached(connection: asyncpg.Connection[Any], name: str) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT relispartition FROM pg_class WHERE oid = to_regclass('milepost.' || $1)", name
        )
    )


async def test_partitions_reach_a_week_ahead(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        last = await connection.fetchval(
            "SELECT (milepost.partition_of('outbox', clock_timestamp() + interval '7 days')).name"
        )
        await connection.execute(f"DROP TABLE milepost.{last}")
        role = upkeep(database_url)
        await role.tidy(stop())
        assert await attached(connection, last)
        assert role.health().ok and "7 days" in role.health().detail


async def test_an_old_partition_goes_when_all_of_it_is_sent(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        name = await make_old(connection)
        await upkeep(database_url).tidy(stop())
        assert await attached(connection, name), "nobody has relayed yet"
        await sent_so_far(connection)
        await upkeep(database_url).tidy(stop())
        assert not await exists(connection, name)


async def test_an_unsent_row_keeps_it(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        name = await make_old(connection)
        await sent_so_far(connection)
        await add_old(connection, 1)
        await upkeep(database_url).tidy(stop())
        assert await attached(connection, name)
        assert await connection.fetchval(f"SELECT count(*) FROM milepost.{name}") == 4


async def test_a_row_that_came_while_it_was_detached_brings_it_back(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        name = await make_old(connection)
        await sent_so_far(connection)
        await add_old(connection, 1)
        await connection.execute(f"ALTER TABLE milepost.outbox DETACH PARTITION milepost.{name}")
        await upkeep(database_url).tidy(stop())
        assert await attached(connection, name), "detached by somebody who then died"
        await sent_so_far(connection)
        await connection.execute(f"ALTER TABLE milepost.outbox DETACH PARTITION milepost.{name}")
        await upkeep(database_url).tidy(stop())
        assert not await exists(connection, name)


async def test_an_open_publish_blocks_no_other(database_url: str) -> None:
    async with connected(database_url, 3) as (connection, opened, other):
        name = await make_old(connection)
        await sent_so_far(connection)
        transaction = opened.transaction()
        await transaction.start()
        await publish_noted(opened, "t", [Noted(key="open")])
        tidying = asyncio.create_task(upkeep(database_url).tidy(stop()))
        await until(
            lambda: connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%DETACH PARTITION%CONCURRENTLY'"
                " AND wait_event_type = 'Lock' AND datname = current_database()"
            ),
            what="the detach to wait for the open transaction",
        )
        for _ in range(20):
            await asyncio.wait_for(publish_noted(other, "t", [Noted(key="k")]), 2)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await tidying
        assert await connection.fetchval("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 1
        await transaction.commit()
        await upkeep(database_url).tidy(stop())
        assert not await exists(connection, name), "the interrupted one was finished"


async def test_a_publish_that_is_still_open_keeps_its_partition(database_url: str) -> None:
    async with connected(database_url, 2) as (connection, opened):
        name = await make_old(connection)
        await sent_so_far(connection)
        transaction = opened.transaction()
        await transaction.start()
        await add_old(opened, 1)
        await upkeep(database_url).tidy(stop())
        assert await connection.fetchval("SELECT count(*) FROM pg_inherits WHERE inhdetachpending") == 0
        await transaction.commit()
        # What the relay reads is the outbox, not its partitions.
        assert await connection.fetchval("SELECT count(*) FROM milepost.outbox") == 4
        await upkeep(database_url).tidy(stop())
        assert await attached(connection, name), "not sent yet"
        await sent_so_far(connection)
        await upkeep(database_url).tidy(stop())
        assert not await exists(connection, name)


@pytest.fixture
async def stranger(database_url: str) -> AsyncIterator[str]:
    """The URL of the database for a user with the runtime role only."""
    name = f"milepost_test_{secrets.token_hex(6)}"
    async with connected(database_url) as (connection,):
        await connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE milepost_runtime")
        yield f"postgresql://{name}@{database_url.rpartition('@')[2]}"
        await connection.execute(f"DROP ROLE {name}")


async def test_another_user_is_told_so(database_url: str, stranger: str) -> None:
    async with connected(database_url) as (connection,):
        last = await connection.fetchval(
            "SELECT (milepost.partition_of('outbox', clock_timestamp() + interval '7 days')).name"
        )
        await connection.execute(f"DROP TABLE milepost.{last}")
    database = Database(settings(stranger))
    role, asked = Upkeep(database), stop()
    running = asyncio.create_task(role.run(asked))
    await until(lambda: "migrate" in role.health().detail, what="health to say what is wrong")
    asked.ask()
    await asyncio.wait_for(running, 5)
    await database.close()
    assert "partitions for 6 days" in role.health().detail
