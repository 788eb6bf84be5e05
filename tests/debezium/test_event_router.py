"""Debezium's own outbox event router reads the same table as the relay, and a consumer takes each event once.

Run it with `make test-debezium`: Kafka Connect and Debezium come from Maven the first time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.devstack.postgres import Postgres
from milepost.inbox.consumer import Consumer
from milepost.outbox.model import event_row
from milepost.outbox.publish import publish_rows
from milepost.schemas.envelope import Record, read_event
from milepost.schemas.transaction import Transaction
from milepost.streams.migrate import migrate

from tests.debezium.connect import routing
from tests.support.inbox import EFFECT, intake_of, opened
from tests.support.outbox import (
    CLOCK,
    IDS,
    Loose,
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relaying,
    until_sent,
)
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    os.environ.get("MILEPOST_DEBEZIUM") != "1" or shutil.which("mvn") is None,
    reason="make test-debezium runs these; they need Java and Maven",
)


@pytest.fixture(scope="module")
def logical_server() -> Iterator[Postgres]:
    """A server that Debezium can read changes from."""
    with Postgres(settings={"wal_level": "logical"}) as server:
        yield server


async def test_router_and_relay_carry_the_same_events(
    logical_server: Postgres, kafka: str, topic_prefix: str
) -> None:
    url, topic = logical_server.create_database("shop"), f"{topic_prefix}.noted"
    await migrate(url)
    await make_topics(kafka, topic)
    async with connected(url) as [connection]:
        await connection.execute(PUBLICATION)
        with routing(url, kafka) as connect:
            await until(
                lambda: connection.fetchval(SLOT_IN_USE),
                within=120,
                every=0.5,
                what=f"the slot\n{connect.tail()}",
            )
            ids = await _publish(connection, topic)
            routed = await until(lambda: _on_topic(kafka, topic, ids), within=60, every=1, what="the router")
        async with relaying(url, kafka):
            await until_sent(connection)
    both = await _records(kafka, topic)
    events = [record for record in both if record.value is not None]
    assert [record.key for record in both if record.value is None] == [b"k-1", b"k-1"]
    assert len(routed) == len(ids) + 1
    assert len(events) == 2 * len(ids)
    _assert_pairs_agree(events, ids)
    assert await _applied(url, topic, events) == ids


PUBLICATION = (
    "CREATE PUBLICATION milepost_outbox FOR TABLE milepost.outbox"
    " WITH (publish = 'insert', publish_via_partition_root = true)"
)
SLOT_IN_USE = "SELECT active FROM pg_replication_slots WHERE slot_name = 'milepost_outbox'"


async def _publish(connection: asyncpg.Connection[Any], topic: str) -> list[UUID]:
    """Write events of several keys, sizes and headers, and one that is rolled back."""
    notes = [Noted(key=f"k-{n % 7}", n=n, text="grüße 🎉 " * n) for n in range(50)]
    ids = await publish_noted(connection, topic, notes, tenant="acme", correlation_id="c-1")
    transaction = connection.transaction()
    await transaction.start()
    await publish_noted(connection, topic, [Noted(key="never")])
    await transaction.rollback()
    ids += await publish_noted(connection, topic, [Loose(n=1)], headers={"x-own": "yes"})
    gone = event_row(Noted(key="k-1"), ids=IDS, clock=CLOCK, topic=topic)
    async with connection.transaction():
        await publish_rows(connection, [replace(gone, payload=None)])
    return ids


async def _records(kafka: str, topic: str) -> list[Record]:
    return [
        Record(r.topic, r.partition, r.offset, r.key, r.value, r.headers, r.timestamp)
        for r in (await arrived(kafka, topic)).all()
    ]


async def _on_topic(kafka: str, topic: str, ids: list[UUID]) -> list[Record] | None:
    found = await _records(kafka, topic)
    return found if len(found) > len(ids) else None


def _assert_pairs_agree(records: list[Record], ids: list[UUID]) -> None:
    pairs: dict[str, list[Record]] = {}
    for record in records:
        pairs.setdefault(read_event(record)[0].event_id, []).append(record)
    assert set(pairs) == {str(event) for event in ids}
    for one, other in pairs.values():
        assert (one.key, one.value) == (other.key, other.value)
        assert one.key is None or one.partition == other.partition
        left, right = read_event(one)[0], read_event(other)[0]
        for name in ("id", "source", "type", "version", "tenant", "time", "correlation_id", "traceparent"):
            assert getattr(left, name) == getattr(right, name), name


async def _applied(url: str, topic: str, records: list[Record]) -> list[UUID]:
    """Consume everything and return the events with an effect, sorted."""
    consumer = Consumer("debezium")

    async def apply(event: Noted | Loose, tx: Transaction) -> None:
        await tx.connection.execute(EFFECT, tx.envelope.id, topic)

    class Key(Noted, type="test.noted", topic=topic, key="key"):
        pass

    class NoKey(Loose, type="test.loose", topic=topic):
        pass

    consumer.on(Key)(apply)
    consumer.on(NoKey)(apply)
    async with opened(url) as database:
        intake = intake_of(consumer, database)
        for partition in sorted({record.partition for record in records}):
            await intake.handle([record for record in records if record.partition == partition])
        return [row["event"] for row in await database.pool.fetch("SELECT event FROM effect ORDER BY event")]
