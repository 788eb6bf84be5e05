"""Sessions of a group reader that break, stand still or are stopped, and what replaces them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.streams import kafka_sockets
from milepost.streams.lifecycle import Stop
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


async def test_a_stop_lets_what_runs_finish_and_commits_it(kafka: str, topic: str) -> None:
    started, gate, seen = asyncio.Event(), asyncio.Event(), Seen()

    async def handle(records: Sequence[Record]) -> None:
        started.set()
        await gate.wait()
        await seen.handle(records)

    await send(kafka, topic, [plain(n) for n in range(6)])
    async with running(reader(kafka, topic, handle, max_records=2)) as stop:
        await started.wait()
        stop.ask()
        gate.set()
    assert seen.offsets() == [0, 1]
    assert await committed(kafka, topic) == {0: 2}


@pytest.mark.parametrize("twice", [False, True])
async def test_at_the_end_of_the_grace_time_a_handler_is_cancelled_and_nothing_committed(
    kafka: str, topic: str, twice: bool
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await send(kafka, topic, [plain(0)])
    clock = SystemClock()
    async with running(reader(kafka, topic, handle), grace=60 if twice else 2) as stop:
        await started.wait()
        began = clock.monotonic()
        stop.ask()
        if twice:
            stop.ask(now=True)
        await until(cancelled.is_set)
    assert clock.monotonic() - began < 6
    assert await committed(kafka, topic) == {}


async def test_a_stop_ends_retries_and_waiting_at_once(kafka: str, topic: str) -> None:
    tried = asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        tried.set()
        raise ConnectionError("away")

    clock = SystemClock()
    await send(kafka, topic, [plain(0)])
    async with running(reader(kafka, topic, handle), grace=60):
        await tried.wait()
        began = clock.monotonic()
    assert clock.monotonic() - began < 5


async def test_a_poll_task_that_ends_is_replaced(kafka: str, topic: str) -> None:
    seen = Seen()
    one = reader(kafka, topic, seen.handle)
    async with running(one):
        await send(kafka, topic, [plain(0)])
        await until(lambda: seen.offsets() == [0])
        assert one._now is not None
        before = one._now
        for task in before.session._subscriber.tasks:
            task.cancel()
        await until(lambda: one._now is not None and one._now is not before, within=20)
        await send(kafka, topic, [plain(1)])
        await until(lambda: 1 in seen.offsets(), within=20)
        await until(lambda: one.health().ok)


@pytest.mark.parametrize(
    "error", [KafkaError("coordinator died"), AssertionError("a defect"), OSError("net")]
)
async def test_a_poll_that_raises_leads_to_a_new_session(kafka: str, topic: str, error: Exception) -> None:
    """FastStream would log it, sleep five seconds or restart its task, for ever."""
    seen = Seen()
    one = reader(kafka, topic, seen.handle)
    async with running(one):
        await send(kafka, topic, [plain(0)])
        await until(lambda: seen.offsets() == [0])
        assert one._now is not None
        consumer = one._now.session.consumer

        def broken() -> None:
            raise error

        consumer._coordinator.check_errors = broken
        await send(kafka, topic, [plain(1)])
        await until(lambda: 1 in seen.offsets(), within=20)


async def test_a_stop_also_ends_what_runs_since_an_earlier_session(kafka: str, topic: str) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    one = reader(kafka, topic, handle)
    await send(kafka, topic, [plain(0)])
    async with running(one, grace=2):
        await started.wait()
        await until(lambda: one._now is not None)
        before = one._now
        assert before is not None
        for task in before.session._subscriber.tasks:
            task.cancel()
        await until(lambda: one._now is not before, within=20)
        assert not cancelled.is_set(), "a running handler outlives the session"
    assert cancelled.is_set()


async def test_no_progress_though_records_wait_leads_to_a_new_session(kafka: str, topic: str) -> None:
    """The consumer object lives and raises nothing, and fetches nothing."""
    seen = Seen()
    one = reader(kafka, topic, seen.handle, stalled_after=4.0)
    async with running(one):
        await send(kafka, topic, [plain(0)])
        await until(lambda: seen.offsets() == [0])
        assert one._now is not None
        before = one._now
        before.session.consumer._fetcher._fetch_task.cancel()
        # The request in flight may still bring the first of these.
        await send(kafka, topic, [plain(1)])
        await send(kafka, topic, [plain(2)])
        await until(lambda: 2 in seen.offsets(), within=40)
        assert one._now is not before


async def test_stopping_before_the_start_is_over_is_quick() -> None:
    seen = Seen()
    clock = SystemClock()
    stop = Stop(clock, FAST.session_timeout)
    task = asyncio.create_task(reader("127.0.0.1:1", "t", seen.handle).run(stop))
    await asyncio.sleep(0)
    stop.ask()
    began = clock.monotonic()
    await asyncio.wait_for(task, 10)
    assert clock.monotonic() - began < 5


async def test_a_stop_in_the_middle_of_a_join_leaves_no_socket_open(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each connection that a start makes; one that is left to the collector warns, which is an error here."""
    connect, left = kafka_sockets._connect, 0
    reached = asyncio.Event()

    async def noticed(*place: Any, **options: Any) -> Any:
        nonlocal left
        connection = await connect(*place, **options)
        left -= 1
        if left == 0:
            reached.set()
        return connection

    monkeypatch.setattr(kafka_sockets, "_connect", noticed)
    for connections in (1, 2, 3):
        left = connections
        reached.clear()
        stop = Stop(SystemClock(), timedelta(seconds=5))
        task = asyncio.create_task(reader(kafka, topic, Seen().handle).run(stop))
        await asyncio.wait_for(reached.wait(), 20)
        stop.ask(now=True)
        await task
        gc.collect()
