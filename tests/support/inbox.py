"""Consumers on real servers: events sent as raw records, effects counted in a table of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from milepost.inbox.consumer import Consumer
from milepost.inbox.intake import Intake
from milepost.schemas.envelope import Record, event_headers
from milepost.schemas.events import Event
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.kafka_client import KafkaAt
from milepost.streams.lifecycle import Role, Stop
from milepost.streams.membership import GroupOptions
from milepost.streams.reader import GroupReader

EFFECTS = "CREATE TABLE effect (n bigserial PRIMARY KEY, event uuid NOT NULL, text text NOT NULL)"
EFFECT = "INSERT INTO effect (event, text) VALUES ($1, $2)"
FAST = GroupOptions(
    session_timeout=timedelta(seconds=6),
    max_poll_interval=timedelta(seconds=2),
    metadata_max_age=timedelta(seconds=2),
)

IDS = SystemIds()


class Paid(Event, type="test.paid", version=1, topic="unused", key="order"):
    """The event that these tests send."""

    order: str
    amount: int = 1


async def nothing_published(tx: Transaction, events: tuple[Event, ...]) -> list[UUID]:
    """Stand in for publishing where a test publishes nothing."""
    return []


def headers(event_id: UUID | str, *, type: str = "test.paid", **more: str) -> list[tuple[str, bytes | None]]:
    """Return CloudEvents headers as raw bytes."""
    found = event_headers(
        event_id=IDS.new(), source="/test", type=type, version=1, time=datetime(2026, 1, 1, tzinfo=UTC)
    )
    found["ce_id"] = str(event_id)
    return [(name, text.encode()) for name, text in {**found, **more}.items()]


def record(
    n: int, *, event_id: UUID | None = None, body: Any = None, topic: str = "t", at_ms: int | None = None
) -> Record:
    """Return a good record at offset `n` of partition 0, as a poll would hand it over."""
    value = json.dumps({"order": f"o-{n}"} if body is None else body).encode()
    now = int(SystemClock().now().timestamp() * 1000)
    return Record(topic, 0, n, None, value, headers(event_id or IDS.new()), now if at_ms is None else at_ms)


@dataclass
class Sent:
    """What a test puts on a topic."""

    value: bytes | None = b"{}"
    headers: Sequence[tuple[str, bytes | None]] = ()
    key: bytes | None = b"k"
    partition: int | None = 0


async def send(kafka: str, topic: str, records: Sequence[Sent]) -> None:
    """Put records on a topic, in order, and wait until the broker has them."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
    await producer.start()
    try:
        waiting = [
            await producer.send(
                topic, sent.value, key=sent.key, partition=sent.partition, headers=list(sent.headers)
            )
            for sent in records
        ]
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
    finally:
        await producer.stop()


def paid(order: str, *, event_id: UUID | None = None, partition: int = 0, amount: int = 1) -> Sent:
    """Return a good event."""
    body = json.dumps({"order": order, "amount": amount}).encode()
    return Sent(value=body, headers=headers(event_id or IDS.new()), partition=partition)


async def committed(kafka: str, group: str) -> dict[int, int]:
    """Return a group's committed offsets by partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return {tp.partition: entry.offset for tp, entry in offsets.items()}
    finally:
        await admin.close()


@dataclass
class Effects:
    """The effect table of one test's database."""

    pool: asyncpg.Pool
    runs: list[str] = field(default_factory=list)

    async def orders(self) -> list[str]:
        """Return the orders with an effect, in the order of their effects."""
        return [row["text"] for row in await self.pool.fetch("SELECT text FROM effect ORDER BY n")]

    async def value(self, sql: str, *args: object) -> Any:
        """Return one value."""
        return await self.pool.fetchval(sql, *args)

    async def rows(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """Return rows."""
        return list(await self.pool.fetch(sql, *args))

    async def apply(self, event: Paid, tx: Transaction) -> None:
        """Handle an event: note the run, write the effect in its transaction."""
        self.runs.append(event.order)
        await tx.connection.execute(EFFECT, tx.envelope.id, event.order)


@asynccontextmanager
async def opened(database_url: str, *, max_size: int = 10, **settings: Any) -> AsyncIterator[Database]:
    """Give an open pool with an effect table."""
    given: dict[str, Any] = {"database_url": database_url, **settings}
    database = Database(Settings(**given), max_size=max_size)
    await database.open()
    try:
        await database.pool.execute(EFFECTS)
        yield database
    finally:
        await database.close()


def consumer_of(name: str, topic: str, handler: Any, **options: Any) -> Consumer:
    """Return a consumer of `Paid` on a topic of the test's own."""

    class Here(Paid, type="test.paid", version=1, topic=topic, key="order"):
        pass

    consumer = Consumer(name, **options)
    consumer.on(Here)(handler)
    return consumer


def intake_of(consumer: Consumer, database: Database, publisher: Any = nothing_published) -> Intake:
    """Return an intake on the machine's clock."""
    return Intake(consumer, database, publisher, clock=SystemClock())


def reader_of(
    consumer: Consumer,
    database: Database,
    kafka: KafkaAt,
    *,
    options: GroupOptions = FAST,
    publisher: Any = nothing_published,
    **more: Any,
) -> GroupReader:
    """Return a reader that feeds a consumer."""
    intake = intake_of(consumer, database, publisher)
    return GroupReader(
        name=consumer.name,
        kafka=kafka,
        group=consumer.name,
        topics=consumer.topics,
        handle=intake.handle,
        positions=intake.positions,
        past=intake.past,
        remarks=intake.counts.words,
        max_records=consumer.batch,
        options=options,
        **more,
    )


@asynccontextmanager
async def running(*readers: Role, grace: float = 5.0) -> AsyncIterator[Stop]:
    """Run readers while the block lasts, then stop them in order.

    Raises:
        AssertionError: A reader did not stop within its grace time and a few seconds.
    """
    stop = Stop(SystemClock(), timedelta(seconds=grace))
    tasks = [asyncio.create_task(reader.run(stop)) for reader in readers]
    try:
        yield stop
    finally:
        stop.ask()
        done, late = await asyncio.wait(tasks, timeout=grace + 10)
        for task in late:
            task.cancel()
        assert not late, "a reader did not stop"
        for task in done:
            task.result()
