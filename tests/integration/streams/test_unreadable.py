"""Records that the client library cannot read, among good ones of the same batch and behind gaps in the offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.record.util import calc_crc32c
from milepost.schemas.envelope import Record
from milepost.streams import slice as topic_slice
from milepost.streams.reader import GroupReader

from tests.support.inbox import FAST, running
from tests.support.outbox import make_topic
from tests.support.waiting import until

UNREADABLE = "milepost-unreadable"


@dataclass
class Seen:
    """What was handed over, by offset."""

    found: dict[int, tuple[bytes | None, bool]] = field(default_factory=dict)

    async def handle(self, records: Sequence[Record]) -> None:
        for record in records:
            odd = any(name == UNREADABLE for name, _ in record.headers)
            self.found[record.offset] = (record.value, odd)


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await make_topic(kafka, name, partitions=1)
    return name


async def send_batch(kafka: str, topic: str, values: Sequence[bytes]) -> None:
    """Send values in one batch; those that begin with "odd" have a header whose name is no UTF-8."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        batch = producer.create_batch()
        for value in values:
            odd = value.startswith(b"odd")
            batch.append(key=b"k", value=value, timestamp=1, headers=[("zz", b"v")] if odd else [])
        build = batch._build

        def patched() -> bytearray:
            raw = bytearray(build().replace(b"zz", b"\xc3\x28"))
            # Record batch v2: the CRC-32C at byte 17 covers everything from byte 21 on.
            raw[17:21] = calc_crc32c(bytes(raw[21:])).to_bytes(4, "big")
            return raw

        batch._build = patched
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()


async def aborted(kafka: str, topic: str) -> None:
    """Leave a gap: records that were taken back, and the marker that says so."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
    await producer.start()
    try:
        await producer.begin_transaction()
        for n in range(3):
            await producer.send_and_wait(topic, b"gone %d" % n, partition=0)
        await producer.abort_transaction()
    finally:
        await producer.stop()
    # The broker writes the marker after it has answered.
    await until_it_ends_at(kafka, TopicPartition(topic, 0), 9)


async def until_it_ends_at(kafka: str, place: TopicPartition, offset: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
    await consumer.start()
    try:

        async def reached() -> bool:
            return bool((await consumer.end_offsets([place]))[place] == offset)

        await until(reached, within=30)
    finally:
        await consumer.stop()


WANTED = {
    0: (b"good 0", False),
    1: (b"odd 1", True),
    2: (b"good 2", False),
    3: (b"odd 3", True),
    4: (b"good 4", False),
    # 5 to 8 are a gap.
    9: (b"odd 9", True),
    10: (b"good 10", False),
}


async def fill(kafka: str, topic: str) -> None:
    await send_batch(kafka, topic, [b"good 0", b"odd 1", b"good 2", b"odd 3", b"good 4"])
    await aborted(kafka, topic)
    await send_batch(kafka, topic, [b"odd 9", b"good 10"])


async def test_a_reader_passes_them_alone(kafka: str, topic: str) -> None:
    await fill(kafka, topic)
    seen = Seen()
    reader = GroupReader(
        name="events", kafka=kafka, group=topic, topics=[topic], handle=seen.handle, options=FAST
    )
    async with running(reader):
        await until(lambda: 10 in seen.found, within=60)
    assert seen.found == WANTED


async def test_a_replay_passes_them_alone(kafka: str, topic: str) -> None:
    await fill(kafka, topic)
    seen = Seen()
    async with topic_slice.opened(kafka, topic) as source:
        async for records in source.read(0, 0, 11, most=500):
            await seen.handle(records)
    assert seen.found == WANTED
