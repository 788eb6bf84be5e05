"""[ok, fail, ok, ok]: the committed offset passes the failed event only together with its letter, stopped or not."""

from __future__ import annotations

from functools import partial

import pytest
from milepost.streams.database import Database
from milepost.streams.topics import ensure_topics

from tests.support.inbox import Effects, committed, consumer_of, paid, reader_of, running, send
from tests.support.letters import ONCE, Broken, states
from tests.support.waiting import until


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(kafka, [name], partitions=1)
    return name


@pytest.mark.parametrize("grace", [0.0, 5.0])
@pytest.mark.parametrize("batch", [1, 500])
async def test_ok_fail_ok_ok_comes_out_the_same_wherever_the_consumer_is_stopped(
    kafka: str, topic: str, database: Database, batch: int, grace: float
) -> None:
    """A new member after each event; without grace the handler is called off while it may still be at work."""
    broken = Broken(Effects(database.pool), {"o-1"})
    orders = ["o-0", "o-1", "o-2", "o-3"]
    consumer = consumer_of(topic, topic, broken.apply, retry=ONCE, batch=batch)
    for order in orders:
        async with running(reader_of(consumer, database, kafka), grace=grace):
            await send(kafka, topic, [paid(order)])
            await until(partial(broken.effects.runs.count, order), within=40, what=f"{order} handled")
    async with running(reader_of(consumer, database, kafka)):

        async def behind_all() -> bool:
            return (await committed(kafka, topic)).get(0) == 4

        await until(behind_all, within=40, what="the committed offset")
    assert await broken.effects.orders() == ["o-0", "o-2", "o-3"]
    # A member that was cut off while it parked leaves a try without an end, and it was the only one allowed.
    codes = {"HANDLER_FAILED"} if grace else {"HANDLER_FAILED", "PROCESS_DIED"}
    ((status, code),) = await states(database)
    assert status == "OPEN" and code in codes


async def test_ok_fail_ok_ok_comes_out_the_same_in_one_go(kafka: str, topic: str, database: Database) -> None:
    broken = Broken(Effects(database.pool), {"o-1"})
    await send(kafka, topic, [paid(f"o-{n}") for n in range(4)])
    async with running(reader_of(consumer_of(topic, topic, broken.apply, retry=ONCE), database, kafka)):

        async def behind_all() -> bool:
            return (await committed(kafka, topic)).get(0) == 4

        await until(behind_all, within=40, what="the committed offset")
    assert await broken.effects.orders() == ["o-0", "o-2", "o-3"]
    assert await states(database) == [("OPEN", "HANDLER_FAILED")]
