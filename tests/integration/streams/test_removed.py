"""Records that a topic's retention removes before, and while, they are read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from milepost.schemas.envelope import Record
from milepost.streams.reader import GroupReader

from tests.support.inbox import FAST, paid, running, send
from tests.support.outbox import make_topic
from tests.support.waiting import until


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await make_topic(kafka, name, partitions=1)
    return name


async def remove(kafka: str, topic: str, before: int) -> None:
    """Remove a topic's records as its retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=before)})
    finally:
        await admin.close()


async def test_what_is_removed_under_a_running_reader_is_said(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen, go = list[int](), asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        await go.wait()
        seen.extend(record.offset for record in records)

    reader = GroupReader(
        name="events",
        kafka=kafka,
        group=topic,
        topics=[topic],
        handle=handle,
        options=FAST,
        max_records=1,
    )
    await send(kafka, topic, [paid(f"o-{n}") for n in range(30)])
    with caplog.at_level(logging.WARNING, "milepost.reader"):
        async with running(reader):
            await until(
                lambda: (now := reader._now) and any(x._paused for x in now._lanes.values()), within=30
            )
            await remove(kafka, topic, 20)
            go.set()
            await until(lambda: 29 in seen, within=30)
    gone = sorted(set(range(30)) - set(seen))
    assert gone and gone[-1] == 19, gone
    assert f"{topic}/0: {len(gone)} offsets from {gone[0]} on were removed" in caplog.text


async def test_aborted_records_and_markers_at_the_end_are_no_lag_and_no_loss(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[int]()

    async def handle(records: Sequence[Record]) -> None:
        seen.extend(record.offset for record in records)

    reader = GroupReader(name="events", kafka=kafka, group=topic, topics=[topic], handle=handle, options=FAST)
    await send(kafka, topic, [paid("o-0")])
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
    await producer.start()
    try:
        for good in (True, False):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"{}", partition=0)
            await (producer.commit_transaction() if good else producer.abort_transaction())
        with caplog.at_level(logging.WARNING, "milepost.reader"):
            async with running(reader):
                await until(
                    lambda: seen == [0, 1] and reader.health().detail == "1 partitions, lag 0", within=30
                )
                await until(lambda: reader._now and reader._now._behind == {(topic, 0): (5, 5)}, within=20)
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"{}", partition=0)
                await until(lambda: reader._now and reader._now._behind[topic, 0] == (5, 5), within=10)
                await producer.commit_transaction()
                await until(lambda: seen == [0, 1, 5], within=30)
                await until(lambda: reader._now and reader._now._behind[topic, 0] == (7, 7), within=10)
                assert reader.health().ok
    finally:
        await producer.stop()
    assert caplog.text == ""
