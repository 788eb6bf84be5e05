"""Scenarios 46 and 50: members that come and go, or are thrown out, over slow handlers and one very slow partition.

MILEPOST_CHAOS=long storms for two minutes with a change every three seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from milepost.schemas.ids import SystemClock
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader
from milepost.streams.topics import ensure_topics

from tests.support.inbox import (
    FAST,
    Effects,
    Paid,
    committed,
    consumer_of,
    opened,
    paid,
    reader_of,
    running,
    send,
)
from tests.support.waiting import until

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
PARTITIONS = 12
SECONDS, CHANGE, EVENTS = (120.0, 3.0, 3600) if LONG else (8.0, 2.0, 480)


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(kafka, [name], partitions=PARTITIONS)
    return name


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url, max_size=30) as database:
        yield database


async def test_members_that_come_and_go_apply_each_event_once(
    kafka: str, topic: str, database: Database
) -> None:
    effects, clock = Effects(database.pool), SystemClock()
    pause = SECONDS / 2 / (EVENTS / PARTITIONS)

    async def slowly(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        await asyncio.sleep(pause)

    def member() -> GroupReader:
        return reader_of(consumer_of(topic, topic, slowly, batch=5), database, kafka)

    expected = [f"o-{n}" for n in range(EVENTS)]
    changes = 0
    async with running(member()):
        await send(kafka, topic, [paid(order, partition=n % PARTITIONS) for n, order in enumerate(expected)])
        began = clock.monotonic()
        while clock.monotonic() - began < SECONDS:
            async with running(member(), grace=1.0):
                await _passed(clock, CHANGE / 2)
            changes += 1
            await _passed(clock, CHANGE / 2)

        async def all_there() -> bool:
            return bool(await effects.value("SELECT count(DISTINCT text) >= $1 FROM effect", EVENTS))

        await until(all_there, within=SECONDS + 60, what="all effects", every=0.25)

        async def all_committed() -> bool:
            return sum((await committed(kafka, topic)).values()) == EVENTS

        await until(all_committed, within=60, what="all offsets committed", every=0.5)
    assert changes >= 3
    assert Counter(await effects.orders()) == Counter(expected)
    assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0
    for partition in range(PARTITIONS):
        mine = [text for text in await effects.orders() if int(text[2:]) % PARTITIONS == partition]
        assert mine == sorted(mine, key=lambda text: int(text[2:])), "a partition's effects are in its order"


async def _passed(clock: SystemClock, seconds: float) -> None:
    began = clock.monotonic()
    await until(lambda: clock.monotonic() - began > seconds, within=seconds + 10)


@pytest.mark.skipif(
    not LONG, reason="the long form of tests/integration/consumer/test_consuming.py's slow handler"
)
async def test_one_slow_partition_holds_back_no_other_through_a_rebalance(
    kafka: str, topic: str, database: Database
) -> None:
    """Its handler runs for three poll intervals while the others go on and a member joins and leaves."""
    effects = Effects(database.pool)
    slow = 3 * FAST.max_poll_interval.total_seconds()

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "slow":
            await asyncio.sleep(slow)

    def member() -> GroupReader:
        return reader_of(consumer_of(topic, topic, handle), database, kafka)

    async with running(member(), grace=15):
        await send(kafka, topic, [paid("slow", partition=0), paid("behind it", partition=0)])
        await until(lambda: "slow" in effects.runs, within=20)
        fast = [f"fast-{n}" for n in range(1, PARTITIONS)]
        async with running(member(), grace=15):
            await send(kafka, topic, [paid(order, partition=n) for n, order in enumerate(fast, 1)])
            await until(lambda: set(fast) <= set(effects.runs), within=20, what="the fast ones")

        async def all_there() -> bool:
            return len(set(await effects.orders())) == PARTITIONS + 1

        await until(all_there, within=60, what="all effects")
    found = await effects.orders()
    assert Counter(found) == Counter(["slow", "behind it", *fast])
    assert found.index("slow") < found.index("behind it")
