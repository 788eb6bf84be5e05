"""Outbox rows, relays and what has arrived on a topic."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from milepost.outbox.log import OutboxState, outbox_state
from milepost.outbox.model import event_row
from milepost.outbox.publish import publish_rows
from milepost.outbox.relay import Relay
from milepost.schemas.events import Event
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop
from milepost.streams.topics import ensure_topics

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CLOCK, IDS = SystemClock(), SystemIds()


class Noted(Event, type="test.noted", topic="noted", key="key"):
    """An event with a key and a number."""

    key: str
    n: int = 0
    text: str = ""


class Loose(Event, type="test.loose", topic="loose"):
    """An event without a key."""

    n: int = 0


def settings(url: str, kafka: str = "127.0.0.1:1", **more: Any) -> Settings:
    """Settings with a short lease."""
    values: dict[str, Any] = {"lease": timedelta(seconds=2), "database_url": url, "kafka": kafka, **more}
    return Settings(**values)


@asynccontextmanager
async def connected(url: str, count: int = 1) -> AsyncIterator[list[asyncpg.Connection[Any]]]:
    """Open connections of a test's own."""
    connections = [await asyncpg.connect(url) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.close(timeout=5)


async def publish_noted(
    connection: asyncpg.Connection[Any], topic: str, notes: Iterable[Noted | Loose], **options: Any
) -> list[UUID]:
    """Insert events of a test's own topic in a transaction; returns their ids."""
    rows = [event_row(note, ids=IDS, clock=CLOCK, topic=topic, **options) for note in notes]
    async with connection.transaction():
        await publish_rows(connection, rows)
    return [row.id for row in rows]


async def make_topics(kafka: str, *names: str, partitions: int = 4) -> None:
    """Create topics."""
    await ensure_topics(kafka, names, partitions=partitions)


async def make_topic(kafka: str, name: str, *, partitions: int = 2, **configs: str) -> None:
    """Create one topic with settings of its own; `max_message_bytes` stands for max.message.bytes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        wanted = {setting.replace("_", "."): value for setting, value in configs.items()}
        await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=wanted)])
    finally:
        await admin.close()


async def alter_topic(kafka: str, name: str, **configs: str) -> None:
    """Change settings of a topic; others fall back to their defaults."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        wanted = {setting.replace("_", "."): value for setting, value in configs.items()}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wanted)])
    finally:
        await admin.close()


async def insert_row(
    connection: asyncpg.Connection[Any],
    topic: str,
    *,
    key: str | None = "k",
    value: bytes | None = b"{}",
    headers: str | None = None,
) -> UUID:
    """Insert a row as somebody who does not use `publish`; returns its id."""
    event = IDS.new()
    await connection.execute(
        "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
        " VALUES ($1, $2, $2, $3, 'test.noted', $4, $5::text::jsonb)",
        event,
        topic,
        key,
        value,
        f'{{"ce_id": "{event}"}}' if headers is None else headers,
    )
    return event


@dataclass
class Running:
    """A relay in this process."""

    relay: Relay
    stop: Stop
    task: asyncio.Task[None]


@asynccontextmanager
async def relaying(
    url: str,
    kafka: str,
    *,
    delivery: float = 10.0,
    grace: float = 10.0,
    topics: Sequence[str] = (),
    **more: Any,
) -> AsyncIterator[Running]:
    """Run a relay in this process; it is stopped cleanly at the end."""
    database = Database(settings(url, kafka, **more))
    relay = Relay(database, delivery_timeout=timedelta(seconds=delivery), topics=topics)
    stop = Stop(CLOCK, timedelta(seconds=grace))
    task = asyncio.create_task(relay.run(stop))
    try:
        yield Running(relay, stop, task)
    finally:
        stop.ask()
        await asyncio.wait_for(task, grace + 10)
        await database.close()


async def until_sent(
    connection: asyncpg.Connection[Any], *, within: float = 30.0, every: float = 0.05
) -> OutboxState:
    """Wait until the stored position says that nothing is left."""

    async def nothing_left() -> OutboxState | None:
        state = await outbox_state(connection)
        return state if state.lag == 0 else None

    return await until(nothing_left, within=within, every=every, what="the outbox to be sent")


@dataclass
class Arrived:
    """What lies on a topic.

    Attributes:
        records: All records, per partition in their order.
    """

    records: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def all(self) -> list[Any]:
        """All records, partition by partition."""
        return [record for partition in sorted(self.records) for record in self.records[partition]]

    def ids(self) -> list[UUID]:
        """Event ids, with repetitions."""
        return [event_id(record) for record in self.all()]

    def order(self) -> dict[bytes | None, list[UUID]]:
        """Ids by key in the order in which each was first seen."""
        seen: dict[bytes | None, dict[UUID, None]] = defaultdict(dict)
        for record in self.all():
            seen[record.key].setdefault(event_id(record))
        return {key: list(ids) for key, ids in seen.items()}

    def copies_differ(self) -> list[UUID]:
        """Ids whose copies are not the same in key, value and headers."""
        first: dict[UUID, tuple[Any, ...]] = {}
        differing = []
        for record in self.all():
            content = (record.key, record.value, tuple(record.headers))
            if first.setdefault(event_id(record), content) != content:
                differing.append(event_id(record))
        return differing


def event_id(record: Any) -> UUID:
    """The CloudEvents id of a record."""
    return UUID(dict(record.headers)["ce_id"].decode())


async def arrived(kafka: str, topic: str) -> Arrived:
    """Read a topic from the beginning to its present end."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        await consumer._client.force_metadata_update()
        partitions = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic) or ())]
        if not partitions:
            consumer._client.add_topic(topic)
            await consumer._client.force_metadata_update()
            partitions = [
                TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic) or ())
            ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found = Arrived()
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for tp, records in (await consumer.getmany(timeout_ms=500, max_records=10_000)).items():
                found.records[tp.partition] += [record for record in records if record.offset < ends[tp]]
        return found
    finally:
        await consumer.stop()


async def until_arrived(kafka: str, topic: str, ids: Sequence[UUID], *, within: float = 30.0) -> Arrived:
    """Wait until all ids are on the topic."""

    async def all_there() -> Arrived | None:
        found = await arrived(kafka, topic)
        return found if set(ids) <= set(found.ids()) else None

    return await until(all_there, within=within, every=0.2, what=f"{len(ids)} events on {topic}")


class RelayProcess:
    """A relay in a process of its own (tests/support/apps/relay_process.py).

    Args:
        env: Variables beside the inherited ones.
    """

    def __init__(self, url: str, kafka: str, **env: str) -> None:
        self._env = {
            "MILEPOST_DATABASE_URL": url,
            "MILEPOST_KAFKA": kafka,
            "MILEPOST_LEASE": "1s",
            "MILEPOST_GRACE": "8s",
            **env,
        }

    async def start(self) -> RelayProcess:
        """Start it; does not wait for it to lead."""
        path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.apps.relay_process",
            env={**os.environ, "PYTHONPATH": path, **self._env},
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.owner = UUID((await asyncio.wait_for(self.process.stdout.readline(), 60)).decode().strip())
        return self

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL, within: float = 20.0) -> int:
        """End it by a signal and wait until it is gone; returns its exit code."""
        self.send(number)
        return await asyncio.wait_for(self.process.wait(), within)

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None


@asynccontextmanager
async def relay_processes(
    url: str, kafka: str, count: int = 1, **env: str
) -> AsyncIterator[list[RelayProcess]]:
    """Run relays in processes of their own; whatever is in the list at the end is killed."""
    processes: list[RelayProcess] = []
    try:
        for _ in range(count):
            processes.append(await RelayProcess(url, kafka, **env).start())
        yield processes
    finally:
        for process in processes:
            if process.alive:
                process.send(signal.SIGCONT)
                await process.end()


async def until_leads(
    connection: asyncpg.Connection[Any], processes: Sequence[RelayProcess], *, within: float = 20.0
) -> RelayProcess:
    """Wait until one of the processes holds the lease, and return it."""

    async def leader() -> RelayProcess | None:
        state = await outbox_state(connection)
        return next(
            (process for process in processes if process.alive and process.owner == state.owner), None
        )

    return await until(leader, within=within, what="a relay to lead")
