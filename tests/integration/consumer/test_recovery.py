"""Offsets lost or reset, topics made anew, partitions added, a database of yesterday: all is read, effects once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.protocol.admin import DeleteGroupsRequest
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.topics import describe, ensure_topics

from tests.support import servers
from tests.support.inbox import (
    IDS,
    Effects,
    Sent,
    committed,
    consumer_of,
    headers,
    opened,
    paid,
    reader_of,
    running,
    send,
)
from tests.support.waiting import until


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(kafka, [name], partitions=2)
    return name


@pytest.fixture
async def admin(kafka: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def reset(kafka: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Commit offsets for a group that has no members, as an operator's tool does."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(list(offsets))
        await consumer.commit(offsets)
    finally:
        await consumer.stop()


async def consume(
    kafka: str, topic: str, database: Database, effects: Effects, wanted: Sequence[str], within: float = 30
) -> None:
    """Run one reader until all of these have an effect."""

    async def there() -> bool:
        return set(wanted) <= set(await effects.orders())

    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await until(there, within=within, what=f"effects of {wanted}")


@asynccontextmanager
async def opened_as_it_is(url: str) -> AsyncIterator[Database]:
    """Give an open pool on a database whose tables are there."""
    given: dict[str, Any] = {"database_url": url}
    database = Database(Settings(**given), max_size=5)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


def orders(begin: int, end: int) -> list[str]:
    return [f"o-{n}" for n in range(begin, end)]


async def forget_group(admin: AIOKafkaAdminClient, group: str) -> None:
    """Delete a group, as soon as its last member has left."""
    coordinator = await admin.find_coordinator(group)

    async def deleted() -> bool:
        answer = await admin._send_request(DeleteGroupsRequest([group]), coordinator)
        return [code for _, code in answer.results] == [0]

    await until(deleted, within=20, what="the group deleted")


async def test_a_group_that_was_deleted_goes_on_at_the_stored_position(
    kafka: str, topic: str, database: Database, effects: Effects, admin: AIOKafkaAdminClient
) -> None:
    await send(kafka, topic, [paid(order) for order in orders(0, 5)])
    await consume(kafka, topic, database, effects, orders(0, 5))
    await forget_group(admin, topic)
    assert await committed(kafka, topic) == {}
    await send(kafka, topic, [paid(order) for order in orders(5, 8)])
    await consume(kafka, topic, database, effects, orders(5, 8))
    assert await effects.orders() == orders(0, 8)
    assert (await committed(kafka, topic))[0] == 8


@pytest.mark.parametrize("to", ["earliest", "latest"])
async def test_a_group_that_was_reset_skips_nothing_and_applies_nothing_twice(
    kafka: str, topic: str, database: Database, effects: Effects, to: str
) -> None:
    await send(kafka, topic, [paid(order) for order in orders(0, 5)])
    await consume(kafka, topic, database, effects, orders(0, 5))
    await send(kafka, topic, [paid(order) for order in orders(5, 8)])
    await reset(kafka, topic, {TopicPartition(topic, 0): 0 if to == "earliest" else 8})
    await consume(kafka, topic, database, effects, orders(5, 8))
    assert await effects.orders() == orders(0, 8)


@pytest.mark.parametrize(("while_running", "longer"), [(False, False), (False, True), (True, True)])
async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    kafka: str,
    topic: str,
    database: Database,
    effects: Effects,
    admin: AIOKafkaAdminClient,
    while_running: bool,
    longer: bool,
) -> None:
    """Whether the new one has fewer records than were read of the old one, or more; nothing of it is skipped."""

    async def anew() -> None:
        await admin.delete_topics([topic])

        async def gone() -> bool:
            return await describe(kafka, [topic]) == {}

        await until(gone, within=20)

        async def there() -> bool:
            return await ensure_topics(kafka, [topic], partitions=2) == [topic] or bool(
                await describe(kafka, [topic])
            )

        await until(there, within=20)
        await send(kafka, topic, [paid(order) for order in second])

    second = [f"new-{n}" for n in range(12 if longer else 3)]
    await send(kafka, topic, [paid(order) for order in orders(0, 5)])
    if while_running:
        async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
            await until(lambda: len(effects.runs) == 5, within=20)
            await anew()

            async def all_of_it() -> bool:
                return set(second) <= set(await effects.orders())

            await until(all_of_it, within=60, what="the new topic's events")
    else:
        await consume(kafka, topic, database, effects, orders(0, 5))
        await anew()
        await consume(kafka, topic, database, effects, second)
    assert Counter(await effects.orders()) == Counter([*orders(0, 5), *second])
    position = await effects.value("SELECT next_offset FROM milepost.consumer_position WHERE partition = 0")
    assert position == len(second), "what was stored of the old topic is gone"


async def test_events_without_an_id_are_told_apart_when_the_topic_was_made_anew(
    kafka: str, topic: str, database: Database, effects: Effects, admin: AIOKafkaAdminClient
) -> None:
    nameless = [(name, value) for name, value in headers(IDS.new()) if name != "ce_id"]
    await send(kafka, topic, [Sent(b'{"order": "same"}', nameless)])
    await consume(kafka, topic, database, effects, ["same"])
    await admin.delete_topics([topic])

    async def made() -> bool:
        await ensure_topics(kafka, [topic], partitions=2)
        return bool(await describe(kafka, [topic]))

    async def gone() -> bool:
        return await describe(kafka, [topic]) == {}

    await until(gone, within=20)
    await until(made, within=20)
    await send(kafka, topic, [Sent(b'{"order": "same"}', nameless)])

    async def twice() -> bool:
        return await effects.orders() == ["same", "same"]

    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await until(twice, within=30, what="an effect of each")


async def test_retention_that_was_faster_is_said(
    kafka: str,
    topic: str,
    database: Database,
    effects: Effects,
    admin: AIOKafkaAdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await send(kafka, topic, [paid(order) for order in orders(0, 3)])
    await consume(kafka, topic, database, effects, orders(0, 3))
    await send(kafka, topic, [paid(order) for order in orders(3, 9)])
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=6)})
    await consume(kafka, topic, database, effects, orders(6, 9))
    assert await effects.orders() == [*orders(0, 3), *orders(6, 9)]
    assert "3 offsets from 3 on were removed by the topic's retention" in caplog.text


async def test_a_partition_that_is_added_is_read_from_its_beginning(
    kafka: str, topic: str, database: Database, effects: Effects, admin: AIOKafkaAdminClient
) -> None:
    await send(kafka, topic, [paid("before")])
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await until(lambda: effects.runs == ["before"], within=20)
        await admin.create_partitions({topic: NewPartitions(total_count=4)})

        async def four() -> bool:
            return (await describe(kafka, [topic]))[topic] == 4

        await until(four, within=20)
        # Sent before the reader has learned of them: a reader that begins at the end would miss these.
        await send(kafka, topic, [paid(f"new-{n}", partition=n) for n in (2, 3)])
        await until(lambda: {"new-2", "new-3"} <= set(effects.runs), within=30)
    assert Counter(await effects.orders()) == Counter(["before", "new-2", "new-3"])


async def test_a_database_restored_to_yesterday_under_a_running_service(
    kafka: str, topic: str, database_url: str, postgres_server: servers.DatabaseServer
) -> None:
    """Interleaving 7 with a real copy: yesterday's database takes the place of today's, Kafka's offsets stay."""
    async with opened(database_url) as today:
        effects = Effects(today.pool)
        await send(kafka, topic, [paid(order) for order in orders(0, 5)])
        await consume(kafka, topic, today, effects, orders(0, 5))
    name = database_url.rpartition("/")[2]
    with servers.fresh_database(postgres_server, name) as yesterday:
        async with opened_as_it_is(database_url) as today:
            effects = Effects(today.pool)
            await send(kafka, topic, [paid(order) for order in orders(5, 9)])
            await consume(kafka, topic, today, effects, orders(5, 9))
        assert (await committed(kafka, topic))[0] == 9
        async with opened_as_it_is(yesterday) as restored:
            effects = Effects(restored.pool)
            assert await effects.orders() == orders(0, 5)
            await consume(kafka, topic, restored, effects, orders(5, 9))
            assert await effects.orders() == orders(0, 9)


async def test_a_database_that_goes_back_while_a_reader_runs(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """A standby that was behind takes over: no rebalance tells of it, the stored position does."""
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await send(kafka, topic, [paid(order) for order in orders(0, 6)])
        await until(lambda: len(effects.runs) == 6, within=20)
        async with database.pool.acquire() as connection, connection.transaction():
            await connection.execute('DELETE FROM milepost.inbox WHERE "offset" >= 2')
            await connection.execute("DELETE FROM effect WHERE text > 'o-1'")
            await connection.execute("UPDATE milepost.consumer_position SET next_offset = 2")
        await send(kafka, topic, [paid("o-6")])

        async def all_again() -> bool:
            return set(await effects.orders()) == set(orders(0, 7))

        await until(all_again, within=30, what="the effects again")
    assert await effects.orders() == orders(0, 7), "each once, in order"
