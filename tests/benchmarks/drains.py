"""R1 to R4: how fast a relay empties a backlog, beside raw clients and a naive relay that send the same records.

A round commits 100,000 rows in one transaction while a relay (a process of its own, `milepost serve --roles relay`)
leads; the clock runs from that commit until the last record lies on the topic. The raw variants send from memory and
from this process. R4 keeps a forgotten transaction open meanwhile, with a number and a snapshot of its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
from aiokafka import AIOKafkaProducer
from milepost.outbox.encode import BATCH_BYTES, place_of

from .harness import FILL, KEYS, PARTITIONS, VALUE, Bench, commit_rows, cpu_seconds, headers, resident_mb

Records: TypeAlias = list[tuple[bytes, list[tuple[str, bytes]]]]


def records(count: int) -> Records:
    """Keys and headers, made before the clock runs."""
    return [
        (
            f"key-{n % KEYS}".encode(),
            [(name, text.encode()) for name, text in headers(secrets.token_hex(18)).items()],
        )
        for n in range(1, count + 1)
    ]


async def producer_of(bench: Bench) -> AIOKafkaProducer:
    """A producer with the relay's promises."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bench.kafka,
        acks="all",
        enable_idempotence=True,
        max_batch_size=BATCH_BYTES,
        linger_ms=0,
    )
    await producer.start()
    return producer


async def raw_send(bench: Bench, topic: str, made: Records) -> float:
    """aiokafka send(), record by record; returns records a second."""
    producer = await producer_of(bench)
    began = time.perf_counter()
    sent = [await producer.send(topic, VALUE, key=key, headers=given) for key, given in made]
    await asyncio.gather(*sent)
    took = time.perf_counter() - began
    await producer.stop()
    return len(made) / took


async def raw_batches(bench: Bench, topic: str, made: Records) -> float:
    """aiokafka send_batch(), whole batches; returns records a second."""
    producer = await producer_of(bench)
    began = time.perf_counter()
    sent, batches = [], {n: producer.create_batch() for n in range(PARTITIONS)}
    for key, given in made:
        partition, _ = place_of(key.decode(), PARTITIONS)
        record: dict[str, Any] = {"timestamp": None, "key": key, "value": VALUE, "headers": given}
        if batches[partition].append(**record) is None:
            sent.append(await producer.send_batch(batches[partition], topic, partition=partition))
            batches[partition] = producer.create_batch()
            batches[partition].append(**record)
    for partition, batch in batches.items():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)
    took = time.perf_counter() - began
    await producer.stop()
    return len(made) / took


async def naive_relay(bench: Bench, topic: str, count: int) -> float:
    """What is often written: a transaction held while a page of 100 is sent and waited for, then DELETE."""
    await bench.connection.execute(FILL, topic, VALUE, count)
    producer = await producer_of(bench)

    async def page() -> bool:
        async with bench.connection.transaction():
            rows = await bench.connection.fetch(
                "SELECT id, aggregateid, payload, headers FROM milepost.outbox ORDER BY seq LIMIT 100 FOR UPDATE"
            )
            sent = []
            for row in rows:
                given = [(name, text.encode()) for name, text in json.loads(row["headers"]).items()]
                key = row["aggregateid"].encode()
                sent.append(await producer.send(topic, row["payload"], key=key, headers=given))
            await asyncio.gather(*sent)
            await bench.connection.execute(
                "DELETE FROM milepost.outbox WHERE id = ANY ($1::uuid[])", [row["id"] for row in rows]
            )
            return bool(rows)

    began = time.perf_counter()
    while await page():
        pass
    took = time.perf_counter() - began
    await producer.stop()
    return count / took


async def drain(bench: Bench, topic: str, count: int, *, name: str = "relay") -> float:
    """Records a second of the relay; notes its processor time per 100,000 and its memory beside."""
    async with bench.relay() as (process,):
        began, used = await commit_rows(bench.connection, topic, count, process.pid)
        await bench.until_on_topic(topic, count)
        took = time.perf_counter() - began
        bench.rate(f"{name}, CPU s / 100k", (cpu_seconds(process.pid) - used) * 100_000 / count)
        bench.rate(f"{name}, MB", resident_mb(process.pid))
    return count / took


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """Somebody has left a transaction open that has written and goes on seeing what it saw."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT pg_current_xact_id(), count(*) FROM milepost.outbox")
            yield
    finally:
        await connection.close()


async def counted(bench: Bench, topic: str, count: int, name: str, rate: float) -> float:
    """Refuse a rate whose records have not arrived."""
    arrived = await bench.on_topic(topic)
    assert arrived == count, f"{name}: {arrived} of {count} arrived"
    return bench.rate(name, rate)


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    count, few = bench.sizes.records, bench.sizes.part(0.1)
    made = records(count)
    outbox = ("milepost.outbox", "milepost.outbox_position")
    for _ in range(bench.sizes.rounds):
        bench.say("R1-R4 relay drain")
        await bench.empty(*outbox)
        topic = await bench.topic()
        free = await counted(bench, topic, count, "relay drain", await drain(bench, topic, count))
        bench.say("R1 raw send()")
        topic = await bench.topic()
        send = await counted(bench, topic, count, "raw send()", await raw_send(bench, topic, made))
        bench.say("R2 raw send_batch()")
        topic = await bench.topic()
        batches = await raw_batches(bench, topic, made)
        await counted(bench, topic, count, "raw send_batch()", batches)
        bench.say("R3 naive relay")
        await bench.empty(*outbox)
        topic = await bench.topic()
        naive = await counted(bench, topic, few, "naive relay", await naive_relay(bench, topic, few))
        bench.say("R4 relay drain, held snapshot")
        await bench.empty(*outbox)
        topic = await bench.topic()
        async with held_snapshot(bench.url):
            held = await drain(bench, topic, count, name="relay, held snapshot")
        await counted(bench, topic, count, "relay drain, held snapshot", held)
        bench.figure("R1", free / send)
        bench.figure("R2", free / batches)
        bench.figure("R3", free / naive)
        bench.figure("R4", held / free)
    await bench.empty(*outbox)
