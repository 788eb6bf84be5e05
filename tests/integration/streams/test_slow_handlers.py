"""Health of readers whose handlers take long: what gets on is well, however long the whole takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from milepost.inbox.failures import Judgement
from milepost.inbox.intake import Intake
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.streams import reader_assignment
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader

from tests.support.inbox import (
    FAST,
    Effects,
    consumer_of,
    nothing_published,
    paid,
    reader_of,
    running,
    send,
)
from tests.support.outbox import make_topic
from tests.support.waiting import until


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await make_topic(kafka, name, partitions=1)
    return name


async def reds(reader: GroupReader, over: Callable[[], Any], within: float) -> set[str]:
    """Return what health said while it was red, from now until `over`."""
    found: set[str] = set()

    async def looked() -> bool:
        health = reader.health()
        if not health.ok:
            found.add(health.detail)
        answer = over()
        return bool(await answer if asyncio.iscoroutine(answer) else answer)

    await until(looked, within=within)
    return found


async def test_a_batch_gets_on_while_each_of_its_handlers_is_quick_enough(
    kafka: str, topic: str, database: Database
) -> None:
    effects = Effects(database.pool)

    async def slow(event: Any, tx: Any) -> None:
        await effects.apply(event, tx)
        await asyncio.sleep(0.4)

    reader = reader_of(consumer_of(topic, topic, slow), database, kafka, slow_after=2.0)
    await send(kafka, topic, [paid(f"o-{n}") for n in range(10)])
    async with running(reader):
        await until(lambda: reader.health().ok and effects.runs, within=30)
        assert await reds(reader, lambda: effects.value("SELECT count(*) = 10 FROM effect"), 30) == set()


async def test_a_wait_that_the_other_side_asked_for_is_no_standstill(
    kafka: str, topic: str, database: Database
) -> None:
    effects = Effects(database.pool)

    async def busy(event: Any, tx: Any) -> None:
        await effects.apply(event, tx)
        if len(effects.runs) < 3:
            raise ValueError("later")

    consumer = consumer_of(topic, topic, busy, retry=Retry(attempts=3, first=timedelta(milliseconds=1)))
    intake = Intake(
        consumer,
        database,
        nothing_published,
        clock=SystemClock(),
        judge=lambda _: Judgement(True, "BUSY", timedelta(seconds=3)),
    )
    reader = GroupReader(
        name=topic,
        kafka=kafka,
        group=topic,
        topics=[topic],
        handle=intake.handle,
        options=FAST,
        slow_after=1.0,
    )
    await send(kafka, topic, [paid("o-1")])
    async with running(reader):
        await until(lambda: reader.health().ok and effects.runs, within=30)
        assert await reds(reader, lambda: effects.value("SELECT count(*) = 1 FROM effect"), 30) == set()


async def test_a_rebalance_during_a_slow_handler_turns_nobody_red_until_that_is_too_slow(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_assignment, "_SILENCE", 3.0)
    monkeypatch.setattr(reader_assignment, "_MEASURE_EVERY", 0.5)
    go, began = asyncio.Event(), asyncio.Event()

    async def slow(records: Sequence[Record]) -> None:
        began.set()
        await go.wait()

    def member(name: str, **more: Any) -> GroupReader:
        return GroupReader(
            name=name, kafka=kafka, group=topic, topics=[topic], handle=slow, options=FAST, **more
        )

    one, clock = member("one", slow_after=12.0), SystemClock()
    async with running(one):
        await send(kafka, topic, [paid("o-1")])
        await asyncio.wait_for(began.wait(), 30)
        start, assignment = clock.monotonic(), one._now
        assert assignment is not None
        lane = next(iter(assignment._lanes.values()))
        async with running(member("two")):
            await until(lambda: lane.closed, within=20, what="a rebalance")
        mine: Callable[[], bool] = lambda: any(found.waits for found in assignment._lanes.values())  # noqa: E731
        await until(mine, within=20, what="the partition again")
        red = await reds(one, lambda: clock.monotonic() - start > 10, 20)
        assert red == set(), "its old handler is within what is allowed"
        await until(lambda: "have been running" in one.health().detail, within=20)
        go.set()
        await until(lambda: one.health().ok, within=20)
