"""I1 to I3: what once-only consuming costs beside raw reading.

One topic of 20,000 events of 500 bytes, one in ten a copy. Read with aiokafka's getmany alone; by a consumer whose
handler takes events together and sends a statement for each of them, pipelined (executemany); by one that makes one
statement for all of them; and, with fewer events, by a handler of single events that awaits its statement, in batches
and with a transaction for each. Effects are counted in their table: each event once.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from milepost.inbox.consumer import Consumer
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader

from tests.support.inbox import EFFECT, IDS, Paid, headers, intake_of, opened, running

from .harness import PARTITIONS, Bench, as_served

BODY = 500
ALL = "INSERT INTO effect (event, text) SELECT * FROM unnest($1::uuid[], $2::text[])"
TABLES = ("effect", "milepost.inbox", "milepost.consumer_position")


async def fill(bench: Bench, topic: str, count: int) -> None:
    """Put events on a topic, every tenth a copy of one nine before it."""
    producer = AIOKafkaProducer(bootstrap_servers=bench.kafka, linger_ms=5)
    await producer.start()
    recent: list[tuple[bytes, list[tuple[str, bytes | None]]]] = []
    for number in range(count):
        if number % 10 == 9:
            body, given = recent[0]
        else:
            text = json.dumps({"order": f"o-{number % 997}", "amount": 1, "note": ""})
            body, given = text.replace('""', f'"{"x" * (BODY - len(text))}"').encode(), headers(IDS.new())
            recent = [*recent, (body, given)][-9:]
        await producer.send(topic, body, partition=number // 10 % PARTITIONS, headers=given)
    await producer.stop()


async def raw(bench: Bench, topic: str, count: int) -> float:
    """Records a second that aiokafka's getmany alone brings, once it has joined its group."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bench.kafka, group_id=secrets.token_hex(6), auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        seen, began = 0, time.perf_counter()
        while seen < count:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return count / (time.perf_counter() - began)
    finally:
        await consumer.stop()


async def pipelined(events: Sequence[Paid], tx: Transaction) -> None:
    """Make one statement an event, without waiting for each."""
    ids = [envelope.id for envelope in tx.envelopes]
    await tx.connection.executemany(
        EFFECT, [(one, event.order) for one, event in zip(ids, events, strict=True)]
    )


async def one_by_one(event: Paid, tx: Transaction) -> None:
    """Make one statement an event, and wait for it."""
    await tx.connection.execute(EFFECT, tx.envelope.id, event.order)


async def together(events: Sequence[Paid], tx: Transaction) -> None:
    """Make one statement for all events."""
    ids = [envelope.id for envelope in tx.envelopes]
    await tx.connection.execute(ALL, ids, [event.order for event in events])


async def inbox(
    bench: Bench, topic: str, count: int, database: Database, *, batch: int = 500, take: Any = None
) -> float:
    """Events a second that a consumer applies or recognises, from its first batch on."""

    class Here(Paid, type="test.paid", version=1, topic=topic, key="order"):
        pass

    name = secrets.token_hex(6)
    consumer = Consumer(name, batch=batch)
    if take is not None:
        consumer.on_batch(Here)(take)
    else:
        consumer.on(Here)(one_by_one)
    intake = intake_of(consumer, database)
    began: list[float] = []
    done = asyncio.Event()

    async def counted(records: Any) -> None:
        began.append(time.perf_counter())
        await intake.handle(records)
        if intake.counts.applied + intake.counts.duplicates >= count:
            done.set()

    reader = GroupReader(
        name=name,
        kafka=bench.kafka,
        group=name,
        topics=[topic],
        handle=counted,
        positions=intake.positions,
        past=intake.past,
        max_records=batch,
    )
    with as_served():
        async with running(reader):
            await asyncio.wait_for(done.wait(), 600)
            took = time.perf_counter() - began[0]
    once = await database.pool.fetchval("SELECT count(*) = count(DISTINCT event) FROM effect")
    effects = await database.pool.fetchval("SELECT count(*) FROM effect")
    assert (once, effects) == (True, intake.counts.applied), f"{effects} effects of {intake.counts.applied}"
    await database.pool.execute(f"TRUNCATE {', '.join(TABLES)}")
    return count / took


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    large, medium, small = await bench.topic(), await bench.topic(), await bench.topic()
    many, some, few = bench.sizes.part(0.2), bench.sizes.part(0.05), bench.sizes.part(0.01)
    bench.say("I1-I3 events")
    await fill(bench, large, many)
    await fill(bench, medium, some)
    await fill(bench, small, few)
    async with bench.database() as url, opened(url) as database:
        for _ in range(bench.sizes.rounds):
            bench.say("I1 raw getmany")
            bare = bench.rate("raw getmany", await raw(bench, large, many))
            bench.say("I1 batch inbox, a statement an event")
            each = await inbox(bench, large, many, database, take=pipelined)
            bench.rate("batch inbox, a statement an event, pipelined", each)
            bench.say("I2 set-based inbox")
            sets = await inbox(bench, large, many, database, take=together)
            bench.rate("batch inbox, a statement for all", sets)
            bench.say("I1 batch inbox, a statement an event, awaited")
            awaited = await inbox(bench, medium, some, database)
            bench.rate("batch inbox, a statement an event, awaited", awaited)
            bench.say("I3 one transaction an event")
            single = await inbox(bench, small, few, database, batch=1)
            bench.rate("one transaction an event", single)
            bench.figure("I1", each / bare)
            bench.figure("I2", sets / bare)
            bench.figure("I3", each / single)
