"""A transaction that somebody forgot keeps every dead row: relaying costs the same.

The short form writes what hours of relaying write under one held snapshot, and compares what a tick costs before and
after. MILEPOST_CHAOS=long relays for minutes with and without one, and compares the rates.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from statistics import median
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.outbox.lease import Lease, Terms, take_lease
from milepost.outbox.log import PositionLog, Reader, outbox_state
from milepost.outbox.parking import Parking
from milepost.outbox.position import Page, Position

from tests.support.outbox import (
    CLOCK,
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relaying,
    until_sent,
)

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
MINUTES = 4.0
POSITIONS = (
    "INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)"
    " SELECT p.outbox, $1, $2 + k, p.previous, p.current, p.last_seq, p.system_identifier"
    " FROM (SELECT * FROM milepost.outbox_position ORDER BY epoch DESC, n DESC LIMIT 1) AS p,"
    " generate_series(1, $3::int) AS k"
)
RENEWALS = (
    "DO $$ BEGIN FOR k IN 1..350 LOOP"
    " UPDATE milepost.outbox_lease SET expires_at = expires_at + interval '1 second'; COMMIT;"
    " END LOOP; END $$"
)


@asynccontextmanager
async def forgotten(connection: asyncpg.Connection[Any]) -> AsyncIterator[None]:
    """Hold a snapshot."""
    held = connection.transaction(isolation="repeatable_read")
    await held.start()
    await connection.fetchval("SELECT 1")
    try:
        yield
    finally:
        await held.rollback()


async def cost(work: Callable[[], Awaitable[object]], times: int = 60) -> float:
    """The median of what doing something costs, in seconds."""
    took = []
    for _ in range(times):
        started = time.perf_counter()
        await work()
        took.append(time.perf_counter() - started)
    return median(took)


async def test_hours_of_positions_and_renewals(database_url: str) -> None:
    async with connected(database_url, 4) as (holder, writing, reading, publishing):
        pool = await asyncpg.create_pool(database_url, min_size=1, max_size=2)
        lease = await take_lease(pool, Terms("outbox", UUID(int=1), timedelta(seconds=300)), clock=CLOCK)
        assert lease is not None
        log = PositionLog(writing, "outbox", lease.epoch, timeout=5)
        await log.load()
        parking = Parking(writing, log, "outbox", lease.epoch, timeout=5)
        tick = Tick(lease, log, Reader(reading, Position(), timeout=5), parking, publishing)
        await publishing.execute("SET synchronous_commit = off")
        await cost(tick.once)
        early = await cost(tick.once)
        async with forgotten(holder):
            await hours(writing, log)
            late = await cost(tick.once)
            assert (await outbox_state(reading)).lag == 0
        await pool.close()
        assert late < 1.5 * early + 0.003, (early, late)
        assert tick.read == tick.published


class Tick:
    """What a leading relay does for one small page, and what it does now and then."""

    def __init__(
        self,
        lease: Lease,
        log: PositionLog,
        reader: Reader,
        parking: Parking,
        publishing: asyncpg.Connection[Any],
    ) -> None:
        self._lease, self._log, self._reader, self._parking = lease, log, reader, parking
        self._publishing = publishing
        self.published = self.read = 0

    async def once(self) -> None:
        """Publish, read, store both positions, renew, trim, and look for letters."""
        await publish_noted(self._publishing, "t", [Noted(key="k")])
        self.published += 1
        found = await self._reader.read()
        while isinstance(found, Page):
            self.read += len(found.rows)
            await self._log.write(found.before)
            await self._log.write(found.after)
            found = await self._reader.read()
        await self._log.trim()
        await self._lease._renew(5.0)
        self._lease.check()
        await self._parking.due_keys([], every=True)
        await self._parking.loose_letters([])


async def hours(writing: asyncpg.Connection[Any], log: PositionLog) -> None:
    """What hours of relaying leave behind: thousands of positions, trimmed since, and as many renewals as in three."""
    for _ in range(3):
        n = log._n
        await writing.execute(POSITIONS, log._epoch, n, 5000)
        log._n = n + 5000
        await log.write(await log.load())
        await writing.execute(RENEWALS)
        await log.trim()


@pytest.mark.skipif(not LONG, reason="MILEPOST_CHAOS=long: takes minutes")
async def test_minutes_of_relaying(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.held"
    await make_topics(kafka, topic)
    async with connected(database_url, 3) as (holder, writer, watch), relaying(database_url, kafka):

        async def rate(seconds: float) -> float:
            """Rows per second that are published and sent, in pages of a hundred."""
            started, rows = time.monotonic(), 0
            while time.monotonic() - started < seconds:
                await publish_noted(writer, topic, [Noted(key=f"k{n}", n=n) for n in range(100)])
                await until_sent(watch, every=0.002)
                rows += 100
            return rows / (time.monotonic() - started)

        await rate(5)
        before = await rate(20)
        async with forgotten(holder):
            await rate(MINUTES * 60)
            held = await rate(20)
        after = await rate(20)
        print(f"rows per second: {before:.0f} before, {held:.0f} under the held snapshot, {after:.0f} after")
        assert held > 0.9 * min(before, after), (before, held, after)
        assert (await arrived(kafka, topic)).all()
