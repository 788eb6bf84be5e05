"""Consumers from Kafka to the database: once each, poison parked, partitions moving."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader
from milepost.streams.topics import ensure_topics

from tests.support.inbox import (
    FAST,
    IDS,
    Effects,
    Paid,
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

PARTITIONS = 6


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await ensure_topics(kafka, [name], partitions=PARTITIONS)
    return name


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url, max_size=20) as database:
        yield database


@pytest.fixture
def effects(database: Database) -> Effects:
    return Effects(database.pool)


async def more_than(effects: Effects, runs: int) -> None:
    await until(lambda: len(effects.runs) > runs, within=20, what=f"more than {runs} runs")


async def test_events_are_applied_once_although_the_topic_has_copies(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """Scenario 23: [new, duplicate, new, the same id twice in a batch], offsets advance, lag returns to 0."""
    ids = [IDS.new() for _ in range(30)]
    batch = [paid(f"o-{n}", event_id=ids[n]) for n in range(30)]
    await send(kafka, topic, batch[:10])
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await until(lambda: len(effects.runs) == 10)
        await send(kafka, topic, [batch[10], batch[3], batch[11], batch[12], batch[12], *batch[5:]])
        await send(kafka, topic, [paid("end")])
        await until(lambda: "end" in effects.runs)
    assert await effects.orders() == [*(f"o-{n}" for n in range(30)), "end"]
    assert (await committed(kafka, topic))[0] == 10 + 5 + 25 + 1


async def test_two_consumers_of_a_group_and_a_forced_rebalance_apply_each_event_once(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    expected = [f"o-{n}" for n in range(600)]
    events = [paid(order, partition=n % PARTITIONS) for n, order in enumerate(expected)]

    async def slowly(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        await asyncio.sleep(0.002)

    def member() -> GroupReader:
        return reader_of(consumer_of(topic, topic, slowly, batch=20), database, kafka)

    async def done() -> bool:
        return bool(await effects.value("SELECT count(DISTINCT text) >= 600 FROM effect"))

    async with running(member()):
        await send(kafka, topic, events[:300])
        await until(lambda: len(effects.runs) > 40)
        for n in range(300, 600, 100):
            async with running(member()) as stop:
                await send(kafka, topic, events[n : n + 100])
                await more_than(effects, len(effects.runs))
                stop.ask(now=True)
        async with running(member()):
            await until(done, within=60, what="all events applied")

            async def all_committed() -> bool:
                return sum((await committed(kafka, topic)).values()) == 600

            # Offsets follow their effects; a stop in between may leave them to the next owner.
            await until(all_committed, within=30, what="all offsets committed")
    counts = Counter(await effects.orders())
    assert counts == Counter(expected)
    assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0


async def test_poison_is_parked_and_the_next_good_event_is_handled_within_a_second(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """Scenario 52, on the wire."""
    good, clock = headers(IDS.new()), SystemClock()
    poison = [
        Sent(b"{", headers(IDS.new())),
        Sent(b'{"order": "trunc', headers(IDS.new())),
        Sent(b'{"order": 5}', headers(IDS.new())),
        Sent(b"", headers(IDS.new())),
        Sent(None, headers(IDS.new())),
        Sent(b"{}", [("ce_type", b"\xc3\x28")]),
        Sent(b"{}", [("ce_type", None)]),
        Sent(b"{}", [*good, ("ce_id", b"another")]),
        Sent(b"not json", []),
    ]
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await send(kafka, topic, [paid("before")])
        await until(lambda: effects.runs == ["before"])
        await send(kafka, topic, [*poison, paid("after")])
        began = clock.monotonic()
        await until(lambda: "after" in effects.runs, every=0.01)
        assert clock.monotonic() - began < 1.0
        await until(lambda: effects.value("SELECT count(*) = 9 FROM milepost.dead_letter"))
    letters = await effects.rows('SELECT value, "offset", code FROM milepost.dead_letter ORDER BY "offset"')
    assert [row["value"] for row in letters] == [sent.value for sent in poison]
    assert [row["offset"] for row in letters] == list(range(1, 10))
    assert await effects.orders() == ["before", "after"]
    assert (await committed(kafka, topic))[0] == 11


async def test_headers_that_no_code_reads_may_hold_anything(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    odd: list[tuple[str, bytes | None]] = [
        *headers(IDS.new()),
        ("x", b"\xc3\x28"),
        ("none", None),
        ("big", b"y" * 500_000),
        ("traceparent", b"\xff"),
    ]
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await send(kafka, topic, [Sent(b'{"order": "odd"}', odd)])
        await until(lambda: effects.runs == ["odd"])
    assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0


async def test_a_handler_of_three_poll_intervals_runs_once_and_starves_nobody(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """Scenario 46, with two consumers."""
    interval = FAST.max_poll_interval.total_seconds()

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "slow":
            await asyncio.sleep(3 * interval)

    members = [reader_of(consumer_of(topic, topic, handle), database, kafka) for _ in range(2)]
    async with running(*members, grace=15):
        await send(kafka, topic, [paid("slow", partition=0)])
        await until(lambda: "slow" in effects.runs)
        others = [paid(f"o-{n}", partition=n) for n in range(1, PARTITIONS)]
        await send(kafka, topic, others)
        await until(lambda: len(effects.runs) == PARTITIONS, within=5, what="the other partitions")

        async def slow_committed() -> bool:
            return (await committed(kafka, topic)).get(0) == 1

        await until(slow_committed, within=4 * interval)
        await send(kafka, topic, [paid("next", partition=0)])
        await until(lambda: "next" in effects.runs)
    assert Counter(await effects.orders())["slow"] == 1
    assert effects.runs.count("slow") <= 2


async def test_a_failing_handler_holds_its_partition_only_until_it_is_parked(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "bad":
            raise ValueError("always")

    retry = Retry(attempts=3, first=timedelta(milliseconds=50))
    async with running(reader_of(consumer_of(topic, topic, handle, retry=retry), database, kafka)):
        await send(kafka, topic, [paid("one"), paid("bad"), paid("two")])
        await until(lambda: effects.value("SELECT count(*) = 1 FROM milepost.dead_letter"))

        async def applied() -> bool:
            return await effects.orders() == ["one", "two"]

        await until(applied)
    assert effects.runs.count("bad") == 4, "once in the batch, then three tries alone"
    assert (await committed(kafka, topic))[0] == 3


async def test_a_database_restored_to_yesterday_reads_yesterday_again(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """Interleaving 7: the effects are gone, the group's offsets are not."""
    consumer = consumer_of(topic, topic, effects.apply)
    await send(kafka, topic, [paid(f"o-{n}") for n in range(6)])
    async with running(reader_of(consumer, database, kafka)):
        await until(lambda: len(effects.runs) == 6)
    assert (await committed(kafka, topic))[0] == 6
    await database.pool.execute('DELETE FROM milepost.inbox WHERE "offset" >= 2')
    await database.pool.execute("DELETE FROM effect WHERE text > 'o-1'")
    await database.pool.execute("UPDATE milepost.consumer_position SET next_offset = 2")
    async with running(reader_of(consumer, database, kafka)):
        await until(lambda: len(effects.runs) == 10)
    assert await effects.orders() == [f"o-{n}" for n in range(6)]


async def test_the_database_goes_away_and_comes_back(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """All its connections are cut while batches run: red, then green, nobody parked, nothing twice."""
    async with running(reader_of(consumer_of(topic, topic, effects.apply, batch=10), database, kafka)):
        for start in range(0, 200, 50):
            await send(kafka, topic, [paid(f"o-{n}", partition=n % 6) for n in range(start, start + 50)])
            await effects.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await until(lambda: effects.value("SELECT count(*) >= 200 FROM effect"), within=30)
    assert Counter(await effects.orders()) == Counter(f"o-{n}" for n in range(200))
    assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0
