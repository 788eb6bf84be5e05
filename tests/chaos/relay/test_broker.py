"""The broker stops, freezes and comes back: nothing is lost, nothing marked that was not acknowledged."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from aiokafka.producer.transaction_manager import TransactionManager
from milepost.devstack.kafka import Kafka
from milepost.outbox.log import outbox_state
from milepost.outbox.producer import Producer

from tests.support.outbox import (
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relay_processes,
    relaying,
    until_arrived,
    until_leads,
    until_sent,
)
from tests.support.waiting import until

#: Orderly restarts before the SIGKILL.
RESTARTS = 5 if os.environ.get("MILEPOST_CHAOS") == "long" else 0


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[Kafka]:
    """A broker that these tests may stop and freeze."""
    with Kafka() as server:
        yield server


@pytest.fixture
def broker(own_kafka: Kafka) -> Iterator[Kafka]:
    """The same, running again afterwards whatever a test did to it."""
    yield own_kafka
    own_kafka.thaw()
    own_kafka.start()


def notes(start: int, stop: int) -> list[Noted]:
    return [Noted(key=f"k{n % 5}", n=n) for n in range(start, stop)]


async def test_a_stopped_broker_loses_nothing(database_url: str, broker: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.stopped"
    await make_topics(broker.bootstrap, topic)
    async with connected(database_url) as (connection,):
        async with relaying(database_url, broker.bootstrap, delivery=2) as running:
            ids = await publish_noted(connection, topic, notes(0, 20))
            await until_sent(connection)
            await asyncio.to_thread(broker.stop)
            ids += await publish_noted(connection, topic, notes(20, 120))
            await until(
                lambda: "Kafka" in running.relay.health().detail, within=20, what="health to name Kafka"
            )
            await until(lambda: not running.relay.health().ok, within=30, what="health to turn red")
            assert (await outbox_state(connection)).lag == 100, "none of them is marked"
            assert await connection.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0
            assert "lag 100" in running.relay.health().detail
            await asyncio.to_thread(broker.start)
            await until_sent(connection, within=60)
            await until(lambda: running.relay.health().ok, what="health to turn green")
        found = await arrived(broker.bootstrap, topic)
        assert sorted(set(found.ids())) == sorted(ids)
        assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}


async def test_frozen_for_longer_than_the_delivery_timeout(
    database_url: str, broker: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.thawed"
    await make_topics(broker.bootstrap, topic)
    async with connected(database_url) as (connection,):
        async with relaying(database_url, broker.bootstrap, delivery=1) as running:
            ids = await publish_noted(connection, topic, notes(0, 10))
            await until_sent(connection)
            broker.freeze()
            for n in range(10, 40, 10):
                ids += await publish_noted(connection, topic, notes(n, n + 10))
            await until(
                lambda: "Kafka" in running.relay.health().detail, within=20, what="the delivery timeout"
            )
            assert (await outbox_state(connection)).lag == 30
            broker.thaw()
            ids += await publish_noted(connection, topic, notes(40, 50))
            await until_sent(connection, within=60)
        found = await until_arrived(broker.bootstrap, topic, ids)
        assert sorted(set(found.ids())) == sorted(ids)
        assert found.copies_differ() == []
        assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}


async def test_asked_to_stop_while_the_broker_is_frozen(
    database_url: str, broker: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.frozen"
    await make_topics(broker.bootstrap, topic)
    async with connected(database_url) as (connection,):
        async with relay_processes(
            database_url, broker.bootstrap, MILEPOST_GRACE="6s", DELIVERY="60"
        ) as processes:
            await until_leads(connection, processes)
            ids = await publish_noted(connection, topic, notes(0, 10))
            await until_sent(connection)
            broker.freeze()
            # By then a page is sent only when its position is stored.
            rested = "SELECT max(at) < clock_timestamp() - interval '200 ms' FROM milepost.outbox_position"
            await until(lambda: connection.fetchval(rested), what="the relay to rest")
            written = await connection.fetchval("SELECT max(n) FROM milepost.outbox_position")
            ids += await publish_noted(connection, topic, notes(10, 60))
            await until(
                lambda: connection.fetchval("SELECT max(n) > $1 FROM milepost.outbox_position", written),
                what="the page to be on its way",
            )
            started = time.monotonic()
            assert await processes[0].end(signal.SIGTERM, within=20) == 0
            assert time.monotonic() - started < 6.5
            state = await outbox_state(connection)
            assert (state.owner, state.lag) == (None, 50), "the lease is given back, nothing is marked"
        broker.thaw()
        async with relaying(database_url, broker.bootstrap):
            found = await until_arrived(broker.bootstrap, topic, ids, within=60)
        assert set(found.ids()) == set(ids)
        assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}


async def test_a_slow_broker_gets_each_row_once(database_url: str, broker: Kafka, topic_prefix: str) -> None:
    """A broker that stands still again and again for less than the delivery timeout only costs time."""
    topic = f"{topic_prefix}.slow"
    await make_topics(broker.bootstrap, topic)
    enough = asyncio.Event()

    async def stutter() -> None:
        while not enough.is_set():
            broker.freeze()
            await asyncio.sleep(0.4)
            broker.thaw()
            await asyncio.sleep(0.1)

    async with connected(database_url) as (connection,):
        async with relaying(database_url, broker.bootstrap, delivery=20):
            ids = await publish_noted(connection, topic, notes(0, 5))
            await until_sent(connection)
            slow = asyncio.create_task(stutter())
            for n in range(5, 45, 5):
                ids += await publish_noted(connection, topic, notes(n, n + 5))
                await until_sent(connection, within=60)
            enough.set()
            await slow
        found = await arrived(broker.bootstrap, topic)
        assert sorted(found.ids()) == sorted(ids), "each once"
        assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}


async def test_a_broker_that_ends_under_load(database_url: str, broker: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.rolled"
    await make_topics(broker.bootstrap, topic)
    enough, ids = asyncio.Event(), list[UUID]()

    async with connected(database_url, 2) as (connection, writer):

        async def write() -> None:
            n = 0
            while not enough.is_set():
                ids.extend(await publish_noted(writer, topic, notes(n, n + 5)))
                n += 5
                await asyncio.sleep(0.02)

        async with relaying(database_url, broker.bootstrap, delivery=3) as running:
            writing = asyncio.create_task(write())
            for _ in range(RESTARTS):
                await asyncio.to_thread(broker.restart)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            enough.set()
            await writing
            await until_sent(connection, within=60)
            await until(lambda: running.relay.health().ok, what="health to turn green")
        found = await arrived(broker.bootstrap, topic)
        assert set(found.ids()) == set(ids)
        assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}
        assert found.copies_differ() == []


async def test_a_producer_beyond_repair_is_replaced(
    database_url: str, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in the sequence numbers, which a real broker refuses from then on until there is a new producer."""
    topic = f"{topic_prefix}.fatal"
    await make_topics(kafka, topic)
    increment, gaps = TransactionManager.increment_sequence_number, 2
    opened, count = Producer.open, 0

    async def counted(self: Producer) -> None:
        nonlocal count
        count += 1
        await opened(self)

    monkeypatch.setattr(Producer, "open", counted)

    def with_a_gap(self: Any, partition: Any, by: int) -> None:
        nonlocal gaps
        gaps, wrong = gaps - 1, gaps > 0
        increment(self, partition, by + (1000 if wrong else 0))

    async with connected(database_url) as (connection,), relaying(database_url, kafka, delivery=2) as running:
        ids = await publish_noted(connection, topic, notes(0, 20))
        await until_sent(connection)
        monkeypatch.setattr(TransactionManager, "increment_sequence_number", with_a_gap)
        # One page may carry all that is published here, and its gap shows in what follows on that partition.
        for n in range(20, 80, 10):
            ids += await publish_noted(connection, topic, notes(n, n + 10))
        await until_sent(connection, within=60)
        ids += await publish_noted(connection, topic, notes(80, 90))
        await until_sent(connection, within=60)
        assert gaps <= 0 and count >= 2, "the broker refused, and the producer was replaced"
        await until(lambda: running.relay.health().ok, what="health to turn green")
    found = await arrived(kafka, topic)
    assert set(found.ids()) == set(ids)
    assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}
    assert found.copies_differ() == []
