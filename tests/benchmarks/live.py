"""R5 to R7: the relay while others publish.

R5: business transactions (an order row and `publish`), eight at a time, with a relay running, beside transactions that
insert the same two rows plainly with no relay. R6: 500 events a second, one a transaction, from before the insert to
the consumer. R7: rows stream in from two connections as fast as the database takes them, and what arrives on the
topic meanwhile is counted.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer
from milepost import Event, publish

from .drains import drain
from .harness import FILL, IDS, PARTITIONS, VALUE, Bench, headers, percentile

CLIENTS = 8
ORDERS = "CREATE TABLE IF NOT EXISTS bench_order (id text PRIMARY KEY, note text NOT NULL)"
ORDER = "INSERT INTO bench_order (id, note) VALUES ($1, $2)"
ROW = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
    " VALUES ($1, $2, $2, $3, 'bench.placed', $4, $5::jsonb)"
)
OUTBOX = ("milepost.outbox", "milepost.outbox_position")


class Placed(Event, type="bench.placed", topic="bench", key="order"):
    """An event of some five hundred bytes."""

    order: str
    at: float = 0.0
    note: str = "x" * 440


async def transactions(
    connections: list[asyncpg.Connection], seconds: float, work: Callable[[Any, str], Awaitable[object]]
) -> float:
    """Transactions a second of all clients together."""
    until = time.perf_counter() + seconds

    async def client(connection: asyncpg.Connection) -> int:
        done = 0
        while time.perf_counter() < until:
            order = str(IDS.new())
            async with connection.transaction():
                await connection.execute(ORDER, order, "x" * 100)
                await work(connection, order)
            done += 1
        return done

    began = time.perf_counter()
    done = await asyncio.gather(*map(client, connections))
    return sum(done) / (time.perf_counter() - began)


async def business(bench: Bench, connections: list[asyncpg.Connection], seconds: float) -> None:
    """One round of R5."""
    topic = await bench.topic()

    async def published(connection: Any, order: str) -> None:
        await publish(connection, Placed(order=order), topic=topic)

    async def plain(connection: Any, order: str) -> None:
        body = Placed(order=order).model_dump_json().encode()
        event_id = IDS.new()
        await connection.execute(ROW, event_id, topic, order, body, json.dumps(headers(event_id)))

    bench.say("R5 plain inserts")
    await bench.empty(*OUTBOX, "bench_order")
    bare = bench.rate("transactions/s, plain inserts", await transactions(connections, seconds, plain))
    bench.say("R5 publish, relay running")
    await bench.empty(*OUTBOX, "bench_order")
    async with bench.relay():
        full = await transactions(connections, seconds, published)
        count = await bench.connection.fetchval("SELECT count(*) FROM milepost.outbox")
        await bench.until_on_topic(topic, count)
    bench.figure("R5", bench.rate("transactions/s, publish and relay", full) / bare)


async def latency(bench: Bench, connections: list[asyncpg.Connection], seconds: float) -> None:
    """One round of R6; several connections, since one does not get 500 transactions a second done everywhere."""
    bench.say("R6 latency at 500/s")
    await bench.empty(*OUTBOX)
    topic, count = await bench.topic(), int(500 * seconds)
    late: list[float] = []
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bench.kafka, auto_offset_reset="earliest")

    async def consume() -> None:
        while len(late) < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                now = time.monotonic()
                late.extend((now - json.loads(record.value)["at"]) * 1000 for record in records)

    async def write(connection: asyncpg.Connection, first: int, began: float) -> None:
        for n in range(first, count, len(connections)):
            await asyncio.sleep(max(0.0, began + n / 500 - time.monotonic()))
            async with connection.transaction():
                await publish(connection, Placed(order=f"o-{n % 997}", at=time.monotonic()), topic=topic)

    async with bench.relay():
        await consumer.start()
        try:
            reading = asyncio.create_task(consume())
            began = time.monotonic()
            await asyncio.gather(*(write(found, n, began) for n, found in enumerate(connections)))
            await asyncio.wait_for(reading, 60)
        finally:
            await consumer.stop()
    # The first second is for connections, plans and caches.
    steady = late[500:] if len(late) > 1000 else late
    bench.figure("R6", percentile(steady, 0.5))
    bench.figure("R6.p99", percentile(steady, 0.99))


async def streaming(bench: Bench, writers: list[asyncpg.Connection], seconds: float) -> float:
    """One round of R7: records a second that arrive while rows stream in."""
    bench.say("R7 rows stream in")
    await bench.empty(*OUTBOX)
    topic, enough = await bench.topic(), asyncio.Event()

    async def write(connection: asyncpg.Connection) -> int:
        done = 0
        while not enough.is_set():
            await connection.execute(FILL, topic, VALUE, 500)
            done += 500
        return done

    async with bench.relay():
        writing = [asyncio.create_task(write(connection)) for connection in writers]
        await bench.until_on_topic(topic, 5000)
        before, began = await bench.on_topic(topic), time.perf_counter()
        await asyncio.sleep(seconds)
        arrived, took = await bench.on_topic(topic) - before, time.perf_counter() - began
        enough.set()
        written = sum(await asyncio.gather(*writing))
        bench.rate("rows/s that stream in", written / (time.perf_counter() - began))
        await bench.until_on_topic(topic, written)
    return bench.rate("relay while rows stream in", arrived / took)


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    await bench.connection.execute(ORDERS)
    scale = min(1.0, bench.sizes.records / 100_000)
    connections = [await asyncpg.connect(bench.url) for _ in range(CLIENTS)]
    try:
        for _ in range(bench.sizes.rounds):
            await business(bench, connections, 4 * scale)
            await latency(bench, connections[:4], max(2.0, 6 * scale))
            rate = await streaming(bench, connections[:2], 4 * scale)
            bench.say("R7 relay drain")
            await bench.empty(*OUTBOX)
            topic = await bench.topic(PARTITIONS)
            alone = bench.rate("relay drain beside R7", await drain(bench, topic, bench.sizes.records))
            bench.figure("R7", rate / alone)
    finally:
        for connection in connections:
            await connection.close()
        await bench.empty(*OUTBOX, "bench_order")
