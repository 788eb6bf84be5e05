"""The position log: insert-only, fast under a held snapshot, and blind to what a former leader adds later."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from statistics import median
from uuid import UUID

import asyncpg
import pytest
from milepost.outbox.lease import LeaseLost, Terms, take_lease
from milepost.outbox.log import PositionLog, Reader
from milepost.outbox.parking import Parking
from milepost.outbox.position import Page, Position, may_go
from milepost.outbox.publish import publish
from milepost.schemas.errors import StateError

from tests.support.outbox import CLOCK, Noted, connected


def at(n: int) -> Position:
    return Position((n, n, ()), (n, n, ()), 0)


async def test_a_former_leaders_late_writes_are_ignored(database_url: str) -> None:
    async with connected(database_url, 2) as (old, new):
        first, second = (
            PositionLog(connection, "outbox", epoch, timeout=5) for epoch, connection in ((1, old), (2, new))
        )
        assert await first.load() == Position()
        await first.write(at(10))
        assert await second.load() == at(10)
        await second.write(at(11))
        for n in range(20, 40):
            await first.write(at(n))  # thawed, and writing on
        assert await PositionLog(new, "outbox", 3, timeout=5).load() == at(11)


async def test_a_held_snapshot_does_not_slow_it_down(database_url: str) -> None:
    async with connected(database_url, 2) as (holder, writer):
        log = PositionLog(writer, "outbox", 1, timeout=5)
        await log.load()
        await writer.execute("SET synchronous_commit = local")
        held = holder.transaction(isolation="repeatable_read")
        await held.start()
        await holder.fetchval("SELECT 1")

        async def timed(count: int) -> float:
            times = []
            for n in range(count):
                started = time.perf_counter()
                await log.write(at(n + 1))
                times.append(time.perf_counter() - started)
            return median(times)

        await timed(50)
        early = await timed(200)
        for _ in range(3):
            await timed(1000)
            await log.trim()
        late = await timed(200)
        updated = await writer.fetchval(
            "SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'outbox_position'"
        )
        await held.commit()
        assert late < 3 * early + 0.002, (early, late)
        assert updated == 0, "one row that is updated grows a chain that every later update walks"
        assert await log.load() == at(200)


async def test_trimming_keeps_the_newest(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        log = PositionLog(connection, "outbox", 1, timeout=5)
        await log.load()
        for n in range(300):
            await log.write(at(n + 1))
        await log.trim()
        assert await connection.fetchval("SELECT count(*) FROM milepost.outbox_position") <= 101
        assert await log.load() == at(300)


async def test_a_position_is_durable_when_written(database_url: str) -> None:
    async with connected(database_url, 2) as (writer, watch):
        log = PositionLog(writer, "outbox", 1, timeout=5)
        await log.load()
        await writer.execute("SET synchronous_commit = off")
        for n in range(30):
            before = await watch.fetchval("SELECT pg_current_wal_insert_lsn()")
            await log.write(at(n + 1))
            assert await watch.fetchval("SELECT pg_current_wal_flush_lsn() > $1", before)
        assert await writer.fetchval("SHOW synchronous_commit") == "off", "only for that statement"


async def test_what_is_sent_was_durable_although_its_commit_did_not_wait(database_url: str) -> None:
    async with connected(database_url, 3) as (writer, reading, watch):
        log = PositionLog(writer, "outbox", 1, timeout=5)
        reader = Reader(reading, await log.load(), timeout=5)
        await log.write(Position())
        await watch.execute("SET synchronous_commit = off")
        waited = 0
        for n in range(30):
            async with watch.transaction():
                await publish(watch, Noted(key=str(n)))
            committed = await watch.fetchval("SELECT pg_current_wal_insert_lsn()")
            page = await reader.read()
            assert isinstance(page, Page)
            if not may_go(page, 0, 0.0):
                waited += 1
                await log.write(page.before, page.until)
            assert await watch.fetchval("SELECT pg_current_wal_flush_lsn() >= $1", committed)
        assert waited > 0, "the server's own writer cannot have been there first each time"


async def test_a_copy_of_the_database_is_refused(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        log = PositionLog(connection, "outbox", 1, timeout=5)
        await log.load()
        await log.write(at(7))
        await connection.execute("UPDATE milepost.outbox_position SET system_identifier = 4711")
        with pytest.raises(StateError, match=r"MP411.*4711") as raised:
            await PositionLog(connection, "outbox", 2, timeout=5).load()
        assert "milepost outbox rebaseline" in raised.value.text


async def test_one_lease_at_a_time(database_url: str) -> None:
    length = timedelta(seconds=1)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        one, two = (Terms("outbox", UUID(int=n), length) for n in (1, 2))
        takers = await asyncio.gather(*(take_lease(pool, terms, clock=CLOCK) for terms in [one, two] * 5))
        (lease,) = [lease for lease in takers if lease is not None]
        assert lease.epoch == 1 and 0 < lease.remaining() < 1
        keeping = asyncio.create_task(lease.keep())
        deadline = asyncio.get_running_loop().time() + 2.5
        while asyncio.get_running_loop().time() < deadline:
            assert await take_lease(pool, two, clock=CLOCK) is None, "it is being renewed"
        lease.check()
        keeping.cancel()
        await lease.release()
        assert lease.remaining() < 0
        taken = await take_lease(pool, two, clock=CLOCK)
        assert taken is not None and taken.epoch == 2


async def test_the_lease_ends_here_before_it_ends_there(database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=2) as pool:
        one, two = (Terms("outbox", UUID(int=n), timedelta(seconds=1)) for n in (1, 2))
        lease = await take_lease(pool, one, clock=CLOCK)
        assert lease is not None
        while await take_lease(pool, two, clock=CLOCK) is None:
            over = lease.remaining() <= 0
        assert over, "somebody else had it while we could still send"
        await lease._renew(1.0)
        assert lease.remaining() <= 0, "a lease that another took cannot be renewed"


async def test_letters_and_positions_of_a_former_leader_are_fenced(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute(
            "INSERT INTO milepost.outbox_lease (outbox, epoch, expires_at) VALUES ('outbox', 2, now())"
        )
        log = PositionLog(connection, "outbox", 1, timeout=5)
        await log.load()
        with pytest.raises(LeaseLost):
            await Parking(connection, log, "outbox", 1, timeout=5).park([], at(1))
        assert await connection.fetchval("SELECT count(*) FROM milepost.outbox_position") == 0
