"""Scenario 51: the broker goes away and comes back, freezes, or the event loop does; consuming goes on by itself.

MILEPOST_CHAOS=long keeps the broker away for two minutes, and the event loop still for 40 seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from milepost.devstack.kafka import Kafka
from milepost.schemas.ids import SystemClock
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.topics import ensure_topics

from tests.support.inbox import FAST, Effects, Paid, consumer_of, opened, paid, reader_of, running, send
from tests.support.waiting import until

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
BACK = 60.0
AWAY, STILL = (120.0, 40.0) if LONG else (5.0, FAST.session_timeout.total_seconds() + 3)


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka() as broker:
        yield broker


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as database:
        yield database


@pytest.fixture
def effects(database: Database) -> Effects:
    return Effects(database.pool)


@pytest.fixture
async def topic(broker: Kafka, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(broker.bootstrap, [name], partitions=3)
    return name


async def elapsed(seconds: float) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    await until(lambda: clock.monotonic() - began > seconds, within=seconds + 5, every=0.2)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_broker_that_stops_and_starts_again(
    broker: Kafka, topic: str, database: Database, effects: Effects, busy: bool
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        await asyncio.sleep(0.01)

    one = reader_of(consumer_of(topic, topic, handle, batch=20), database, broker.bootstrap)
    events = [paid(f"o-{n}", partition=n % 3) for n in range(900 if busy else 30)]
    async with running(one):
        await send(broker.bootstrap, topic, events)
        await until(lambda: len(effects.runs) >= 30, within=20)
        await asyncio.to_thread(broker.stop)
        await until(lambda: not one.health().ok, within=40, what="health red")
        await elapsed(AWAY)
        stuck = one.stuck_for()
        assert stuck >= AWAY, "how long it has been red is known"
        await asyncio.to_thread(broker.start)
        await send(broker.bootstrap, topic, [paid(f"later-{n}", partition=n) for n in range(3)])
        wanted = len(events) + 3
        await until(
            lambda: effects.value("SELECT count(*) >= $1 FROM effect", wanted),
            within=BACK,
            what="all effects",
        )
        await until(lambda: one.health().ok, within=20, what="health green")
        assert one.stuck_for() == 0.0
    assert set(Counter(await effects.orders()).values()) == {1}


async def test_a_broker_that_freezes_beyond_the_session(
    broker: Kafka, topic: str, database: Database, effects: Effects
) -> None:
    one = reader_of(consumer_of(topic, topic, effects.apply), database, broker.bootstrap)
    async with running(one):
        await send(broker.bootstrap, topic, [paid("before")])
        await until(lambda: effects.runs == ["before"], within=20)
        broker.freeze()
        try:
            await elapsed(2 * FAST.session_timeout.total_seconds())
        finally:
            broker.thaw()
        await send(broker.bootstrap, topic, [paid("after", partition=n) for n in range(3)])
        await until(lambda: effects.runs.count("after") == 3, within=BACK)


async def test_an_event_loop_that_freezes_beyond_the_session(
    broker: Kafka, topic: str, database: Database, effects: Effects
) -> None:
    one = reader_of(consumer_of(topic, topic, effects.apply), database, broker.bootstrap)
    async with running(one):
        await send(broker.bootstrap, topic, [paid("before")])
        await until(lambda: effects.runs == ["before"], within=20)
        time.sleep(STILL)
        await send(broker.bootstrap, topic, [paid("after", partition=n) for n in range(3)])
        await until(lambda: effects.runs.count("after") == 3, within=BACK)
    assert set(Counter(await effects.orders()).values()) == {1, 3}


async def test_a_stop_while_the_broker_is_frozen_or_away_is_bounded(
    broker: Kafka, topic: str, database: Database, effects: Effects
) -> None:
    clock = SystemClock()
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, broker.bootstrap)):
        await send(broker.bootstrap, topic, [paid("before")])
        await until(lambda: effects.runs == ["before"], within=20)
        broker.freeze()
        began = clock.monotonic()
    took = clock.monotonic() - began
    broker.thaw()
    assert took < 8, f"took {took:.1f} s"
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, broker.bootstrap)):
        await send(broker.bootstrap, topic, [paid("again")])
        await until(lambda: "again" in effects.runs, within=20)
        await asyncio.to_thread(broker.stop)
        began = clock.monotonic()
    took = clock.monotonic() - began
    await asyncio.to_thread(broker.start)
    assert took < 8, f"took {took:.1f} s"
