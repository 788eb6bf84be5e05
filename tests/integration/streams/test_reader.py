"""A group reader on a real broker, with handlers that need no database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.streams import kafka_poll
from milepost.streams.reader import GroupReader
from milepost.streams.topics import ensure_topics

from tests.support.inbox import FAST, Sent, committed, running, send
from tests.support.waiting import until


@dataclass
class Seen:
    """Records as a handler saw them."""

    records: list[Record] = field(default_factory=list)

    async def handle(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.records if record.partition == partition]


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(kafka, [name], partitions=3)
    return name


def reader(kafka: str, topic: str, handle: Any, **more: Any) -> GroupReader:
    return GroupReader(
        name="r", kafka=kafka, group=topic, topics=[topic], handle=handle, options=FAST, **more
    )


def plain(n: int, partition: int = 0) -> Sent:
    return Sent(value=str(n).encode(), partition=partition)


async def test_records_arrive_raw_and_in_order(kafka: str, topic: str) -> None:
    odd: list[tuple[str, bytes | None]] = [("h", b"\xc3\x28"), ("h", b""), ("n", None)]
    sent = [Sent(b"", odd), Sent(None, odd, key=b"\xff"), Sent(b"\x00", [], key=None)]
    seen = Seen()
    async with running(reader(kafka, topic, seen.handle)):
        await send(kafka, topic, sent)
        await until(lambda: len(seen.records) == 3)
    assert [(r.value, list(r.headers), r.key) for r in seen.records] == [
        (b"", odd, b"k"),
        (None, odd, b"\xff"),
        (b"\x00", [], None),
    ]
    assert seen.offsets() == [0, 1, 2]


async def test_no_poll_goes_through_a_thread(kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastStream calls what is not asynchronous in a thread of a pool, which costs more than all of a small poll."""
    called: list[str] = []
    run_sync = anyio.to_thread.run_sync

    async def noted(function: Any, *arguments: Any, **more: Any) -> Any:
        called.append(repr(function))
        return await run_sync(function, *arguments, **more)

    seen = Seen()
    async with running(reader(kafka, topic, seen.handle)):
        monkeypatch.setattr(anyio.to_thread, "run_sync", noted)
        await send(kafka, topic, [plain(0)])
        await until(lambda: len(seen.records) == 1)
    assert called == []


async def test_offsets_are_committed_for_what_was_handled_and_nothing_else(kafka: str, topic: str) -> None:
    seen, gate = Seen(), asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        if records[0].partition == 1:
            await gate.wait()
        await seen.handle(records)

    await send(kafka, topic, [plain(n, n % 2) for n in range(20)])
    async with running(reader(kafka, topic, handle)):
        await until(lambda: len(seen.offsets(0)) == 10)

        async def first_partition_only() -> bool:
            return await committed(kafka, topic) == {0: 10}

        await until(first_partition_only, what="partition 0 alone committed")
        gate.set()
        await until(lambda: len(seen.offsets(1)) == 10)
    assert await committed(kafka, topic) == {0: 10, 1: 10}
    again = Seen()
    async with running(reader(kafka, topic, again.handle)):
        await send(kafka, topic, [plain(99)])
        await until(lambda: again.records)
    assert [record.value for record in again.records] == [b"99"]


async def test_a_slow_partition_is_bounded_and_holds_back_no_other(kafka: str, topic: str) -> None:
    """Longer than max.poll.interval, and many more records than may wait in memory."""
    seen, held, gate = Seen(), 0, asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        nonlocal held
        if records[0].partition == 0:
            held += 1
            await gate.wait()
        await seen.handle(records)

    await send(kafka, topic, [plain(n, n % 2) for n in range(4000)])
    one = reader(kafka, topic, handle, max_records=50)
    async with running(one):
        await until(lambda: len(seen.offsets(1)) == 2000, within=20)
        began = SystemClock().monotonic()

        async def longer_than_max_poll() -> bool:
            return SystemClock().monotonic() - began > 3 * FAST.max_poll_interval.total_seconds()

        await until(longer_than_max_poll, within=20)
        await send(kafka, topic, [plain(1, 1)])
        await until(lambda: len(seen.offsets(1)) == 2001)
        assert held == 1, "the same call is still the one that runs"
        assert one.health().ok, one.health().detail
        assert one._now is not None
        assert len(one._now._lanes[topic, 0]._queue) <= 50 * (2 + 4), "a full partition is paused"
        gate.set()
        await until(lambda: len(seen.offsets(0)) == 2000, within=20)
    assert seen.offsets(0) == list(range(2000))


async def test_a_partition_that_goes_on_does_not_wait_with_those_that_have_no_records(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has one fetch at a time, and keeps it while none of what it names has records."""
    monkeypatch.setattr(kafka_poll, "WAIT", 30_000)
    seen, gate = Seen(), asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        if records[0].partition == 0:
            await gate.wait()
        await seen.handle(records)

    one = reader(kafka, topic, handle, max_records=2)
    async with running(one):
        await send(kafka, topic, [plain(n) for n in range(10)])
        await until(lambda: one._now is not None and one._now._lanes[topic, 0]._paused)
        await send(kafka, topic, [plain(n) for n in range(10, 100)])
        await send(kafka, topic, [plain(0, 1)])
        await until(lambda: seen.offsets(1) == [0], what="a record of a partition that is fetched")
        gate.set()
        await until(lambda: seen.offsets(0) == list(range(100)), within=15)


async def test_trouble_is_tried_again_with_the_same_records_while_others_go_on(
    kafka: str, topic: str
) -> None:
    seen, tries, well = Seen(), list[list[int]](), False

    async def handle(records: Sequence[Record]) -> None:
        if records[0].partition == 0 and not well:
            tries.append([record.offset for record in records])
            raise ConnectionError("the database is away")
        await seen.handle(records)

    one = reader(kafka, topic, handle, max_records=2)
    await send(kafka, topic, [plain(n) for n in range(4)])
    async with running(one):
        await until(lambda: len(tries) >= 3)
        await send(kafka, topic, [plain(0, 1)])
        await until(lambda: seen.offsets(1) == [0])
        assert tries == [tries[0]] * len(tries)
        assert seen.offsets(0) == []
        assert not one.health().ok and "the database is away" in one.health().detail
        assert 0 not in await committed(kafka, topic)
        well = True
        await until(lambda: seen.offsets(0) == [0, 1, 2, 3], within=20)
        await until(lambda: one.health().ok)


@pytest.mark.parametrize(("stored", "start"), [(None, 6), (2, 2), (8, 6), (9, 0)])
async def test_reading_begins_at_the_lower_of_offset_and_position(
    kafka: str, topic: str, stored: int | None, start: int
) -> None:
    """A database restored to yesterday reads yesterday again; 9 is beyond the end, so it is of another topic."""
    await send(kafka, topic, [plain(n) for n in range(6)])
    first = Seen()
    async with running(reader(kafka, topic, first.handle)):
        await until(lambda: len(first.records) == 6)
    await send(kafka, topic, [plain(n) for n in range(6, 8)])

    async def positions(partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {} if stored is None else {(topic, 0): stored}

    second = Seen()
    async with running(reader(kafka, topic, second.handle, positions=positions)):
        await until(lambda: 7 in second.offsets())
    assert second.offsets() == list(range(start, 8))


async def test_a_group_without_offsets_begins_at_the_stored_position(kafka: str, topic: str) -> None:
    await send(kafka, topic, [plain(n) for n in range(6)])

    async def positions(partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {(topic, 0): 4}

    seen = Seen()
    async with running(reader(kafka, topic, seen.handle, positions=positions)):
        await until(lambda: seen.records)
    assert seen.offsets() == [4, 5]


async def test_without_the_database_it_waits_red_and_then_reads_everything(kafka: str, topic: str) -> None:
    await send(kafka, topic, [plain(n, n % 3) for n in range(9)])
    away, asked = True, 0

    async def positions(partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        nonlocal asked
        asked += 1
        if away:
            raise ConnectionRefusedError("no database")
        return {}

    seen = Seen()
    one = reader(kafka, topic, seen.handle, positions=positions)
    async with running(one):
        await until(lambda: asked > 6)
        assert not one.health().ok and "no database" in one.health().detail
        assert seen.records == []
        away = False
        await until(lambda: len(seen.records) == 9, within=20)
        assert one.health().ok
    assert [seen.offsets(n) for n in range(3)] == [[0, 1, 2]] * 3


async def test_a_missing_broker_is_red_and_said() -> None:
    nowhere = reader("127.0.0.1:1", "t", Seen().handle)
    async with running(nowhere):
        await until(lambda: "MP502" in nowhere.health().detail)
        assert not nowhere.health().ok


async def test_a_missing_topic_is_waited_for(kafka: str, topic_prefix: str) -> None:
    name, seen = f"{topic_prefix}.late", Seen()
    one = reader(kafka, name, seen.handle)
    async with running(one):
        await until(lambda: "UnknownTopicOrPartition" in one.health().detail, within=40)
        assert not one.health().ok
        await ensure_topics(kafka, [name], partitions=1)
        await send(kafka, name, [plain(0)])
        await until(lambda: seen.offsets() == [0], within=40)


async def send_with_a_header_name_of_no_utf8(kafka: str, topic: str) -> None:
    """Send a good record and, in the same batch, one whose header is named C3 28, as a client in C may."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch.append(key=b"k", value=b"good", timestamp=1, headers=[])
        batch.append(key=b"k", value=b"odd", timestamp=1, headers=[("zz", b"v")])
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


async def test_a_header_name_that_is_no_text_holds_up_nothing(kafka: str, topic: str) -> None:
    seen = Seen()
    async with running(reader(kafka, topic, seen.handle)):
        await send_with_a_header_name_of_no_utf8(kafka, topic)
        await send(kafka, topic, [plain(2), plain(0, 1)])
        await until(lambda: seen.offsets() == [0, 1, 2] and seen.offsets(1) == [0], within=20)
    odd = next(record for record in seen.records if record.offset == 1)
    assert odd.value == b"odd" and [name for name, _ in odd.headers] == ["milepost-unreadable"]


async def test_several_readers_live_in_one_process(kafka: str, topic: str) -> None:
    seen, other = Seen(), Seen()
    two = GroupReader(
        name="two", kafka=kafka, group=f"{topic}.two", topics=[topic], handle=other.handle, options=FAST
    )
    async with running(reader(kafka, topic, seen.handle), two):
        await send(kafka, topic, [plain(n) for n in range(3)])
        await until(lambda: seen.offsets() == other.offsets() == [0, 1, 2])
