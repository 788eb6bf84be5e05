"""Scenarios 27 and 23: what an event without a usable id becomes, and batches of new and repeated ones."""

from __future__ import annotations

import asyncpg
import pytest
from aiokafka import AIOKafkaProducer
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader
from milepost.streams.topics import ensure_topics

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
from tests.support.outbox import make_topic
from tests.support.waiting import until

Headers = list[tuple[str, bytes | None]]


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.events"
    await make_topic(kafka, name, partitions=1, **{"max.message.bytes": "4000000"})
    return name


def without_id(*ids: bytes | None) -> Headers:
    """Return good headers with these ids in place of the one."""
    plain = [(name, value) for name, value in headers(IDS.new()) if name != "ce_id"]
    return [*plain, *(("ce_id", value) for value in ids)]


#: Headers of a kind, and whether its events are handled (else they are parked).
KINDS: dict[str, tuple[Headers, bool]] = {
    "no id": (without_id(), True),
    "empty": (without_id(b""), True),
    "whitespace": (without_id(b" \t "), True),
    "null": (without_id(None), True),
    "10 kB": (without_id(b"x" * 10_000), True),
    "the same empty one twice": (without_id(b"", b""), True),
    "two different": (without_id(b"a", b"b"), False),
    "no UTF-8": (without_id(b"\xc3\x28"), False),
}


@pytest.mark.parametrize("batch", [1, 500])
async def test_two_events_without_a_usable_id_are_two_and_the_partition_moves_on(
    kafka: str, topic: str, database: Database, effects: Effects, batch: int
) -> None:
    sent = [
        Sent(f'{{"order": "{kind}, {n}"}}'.encode(), found)
        for kind, (found, _) in KINDS.items()
        for n in (1, 2)
    ]
    # An id in the body is none: only headers name an event.
    sent += [Sent(f'{{"order": "in the body, {n}", "id": "same"}}'.encode(), without_id()) for n in (1, 2)]
    reader = reader_of(consumer_of(topic, topic, effects.apply, batch=batch), database, kafka)
    async with running(reader):
        await send(kafka, topic, [*sent, paid("after")])
        await until(lambda: "after" in effects.runs, within=20)
        await until_committed(kafka, topic, len(sent) + 1)
        health = reader.health().detail
    handled = [f"{kind}, {n}" for kind, (_, good) in KINDS.items() if good for n in (1, 2)]
    assert await effects.orders() == [*handled, "in the body, 1", "in the body, 2", "after"]
    letters = await effects.rows('SELECT code, value FROM milepost.dead_letter ORDER BY "offset"')
    parked = [f"{kind}, {n}" for kind, (_, good) in KINDS.items() if not good for n in (1, 2)]
    assert [row["code"] for row in letters] == ["BAD_HEADER"] * len(parked)
    assert [row["value"].decode() for row in letters] == [f'{{"order": "{text}"}}' for text in parked]
    assert f"{len(handled) + 2} without an id" in health and f"{len(parked)} parked" in health


async def test_read_again_they_are_the_same(
    kafka: str, topic: str, database: Database, effects: Effects
) -> None:
    """Their identity is their place, so a redelivery is one."""
    await send(kafka, topic, [Sent(b'{"order": "one"}', without_id()), Sent(b"{", without_id(b"\xff"))])
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await until_committed(kafka, topic, 2)
    await database.pool.execute("UPDATE milepost.consumer_position SET next_offset = 0")
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await send(kafka, topic, [paid("end")])
        await until(lambda: "end" in effects.runs, within=20)
    assert await effects.orders() == ["one", "end"]
    assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 1


async def test_odd_headers_stop_nothing(kafka: str, topic: str, database: Database, effects: Effects) -> None:
    """A header of a megabyte, headers of one name, null values and bytes that are no text, beside good ones."""
    good, clock = headers(IDS.new()), SystemClock()
    odd: list[Headers] = [
        [*good, ("big", b"y" * 1_000_000)],
        [*headers(IDS.new()), ("same", b"1"), ("same", b"2"), ("same", None)],
        [*headers(IDS.new()), ("raw", b"\xc3\x28"), ("", b"no name")],
        [*headers(IDS.new()), ("ce_time", None), ("ce_source", b"")],
    ]
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        producer = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=4_000_000)
        await producer.start()
        try:
            for n, found in enumerate(odd):
                await producer.send_and_wait(topic, f'{{"order": "odd-{n}"}}'.encode(), headers=found)
            await send(kafka, topic, [paid("after")])
            began = clock.monotonic()
            await until(lambda: "after" in effects.runs, within=20, every=0.01)
        finally:
            await producer.stop()
        assert clock.monotonic() - began < 2.0
    assert await effects.orders() == [*(f"odd-{n}" for n in range(len(odd))), "after"]


SETTINGS = {
    # Where the server knows the language; the messages of a duplicate key are then not English.
    "another language": "SET lc_messages = 'de_DE.utf8'",
    "serializable by default": "SET default_transaction_isolation = 'serializable'",
}


@pytest.mark.parametrize("how", SETTINGS)
async def test_new_and_repeated_ones_in_a_batch_whatever_the_databases_defaults(
    kafka: str, topic: str, database_url: str, how: str
) -> None:
    """[new, dup, new, the same id twice], with two members of the group that change places over it."""
    connection = await asyncpg.connect(database_url)
    try:
        name = database_url.rpartition("/")[2]
        await connection.execute(f"ALTER DATABASE {name} {SETTINGS[how]}")
    except asyncpg.InvalidParameterValueError:
        pytest.skip("this server was built without that language, or the machine lacks it")
    finally:
        await connection.close()
    async with opened(database_url) as database:
        effects = Effects(database.pool)
        await ensure_topics(kafka, [topic])
        first, second = paid("first"), paid("second")
        twice = paid("twice")

        def member() -> GroupReader:
            return reader_of(consumer_of(topic, topic, effects.apply), database, kafka)

        async with running(member()):
            await send(kafka, topic, [first])
            await until(lambda: effects.runs == ["first"], within=20)
            async with running(member()):
                await send(kafka, topic, [second, first, paid("third"), twice, twice])
            await send(kafka, topic, [paid("end")])
            await until(lambda: "end" in effects.runs, within=30)
            await until_committed(kafka, topic, 7)
        assert await effects.orders() == ["first", "second", "third", "twice", "end"]
        assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0


async def until_committed(kafka: str, topic: str, offset: int) -> None:
    async def there() -> bool:
        return (await committed(kafka, topic)).get(0) == offset

    await until(there, within=30, what=f"offset {offset} committed", every=0.2)
