"""Inbox throughput beside raw reading, variants interleaved in one run; prints a table, writes build/bench-inbox.json.

Run as `python -m tests.benchmarks.inbox [rounds]`. Servers are those of MILEPOST_TEST_DATABASE_URL and
MILEPOST_TEST_KAFKA, or started for the run. 500-byte values, 4 partitions, 997 keys, one in ten a duplicate.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader
from milepost.streams.topics import ensure_topics

from tests.support.inbox import (
    EFFECT,
    IDS,
    Paid,
    consumer_of,
    headers,
    intake_of,
    opened,
    running,
)
from tests.support.servers import fresh_database, kafka, migrated_template, postgres

PARTITIONS = 4
BODY = 500
OUT = Path(__file__).resolve().parents[2] / "build" / "bench-inbox.json"
Measured = Callable[[], Awaitable[float]]


async def fill(bootstrap: str, topic: str, n: int) -> None:
    """Put `n` events on a topic, every tenth a copy of one nine before it."""
    await ensure_topics(bootstrap, [topic], partitions=PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    await producer.start()
    recent: list[tuple[bytes, list[tuple[str, bytes | None]]]] = []
    for number in range(n):
        if number % 10 == 9:
            body, given = recent[0]
        else:
            text = json.dumps({"order": f"o-{number % 997}", "amount": 1, "note": ""})
            body, given = text.replace('""', f'"{"x" * (BODY - len(text))}"').encode(), headers(IDS.new())
            recent = [*recent, (body, given)][-9:]
        await producer.send(topic, body, partition=number // 10 % PARTITIONS, headers=given)
    await producer.stop()


async def raw(bootstrap: str, topic: str, n: int) -> float:
    """Records a second that aiokafka's getmany alone brings."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=secrets.token_hex(6), auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        seen, began = 0, time.perf_counter()
        while seen < n:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return n / (time.perf_counter() - began)
    finally:
        await consumer.stop()


async def inbox(bootstrap: str, topic: str, n: int, database: Database, *, batch: int, effect: bool) -> float:
    """Events a second that a consumer applies or recognises, from its first batch on."""

    async def handle(event: Paid, tx: Transaction) -> None:
        if effect:
            await tx.connection.execute(EFFECT, tx.envelope.id, event.order)

    name = secrets.token_hex(6)
    consumer = consumer_of(name, topic, handle, batch=batch)
    intake = intake_of(consumer, database)
    began: list[float] = []
    done = asyncio.Event()

    async def counted(records: Any) -> None:
        began.append(time.perf_counter())
        await intake.handle(records)
        if intake.counts.applied + intake.counts.duplicates >= n:
            done.set()

    reader = GroupReader(
        name=name,
        kafka=bootstrap,
        group=name,
        topics=[topic],
        handle=counted,
        positions=intake.positions,
        max_records=batch,
    )
    async with running(reader):
        await asyncio.wait_for(done.wait(), 600)
        return n / (time.perf_counter() - began[0])


async def measure(database_url: str, bootstrap: str, rounds: int) -> dict[str, list[float]]:
    """Return the rates of each variant, one per round."""
    large, small = f"bench{secrets.token_hex(4)}", f"bench{secrets.token_hex(4)}"
    sizes = {large: 20_000, small: 1_000}
    for topic, n in sizes.items():
        await fill(bootstrap, topic, n)
    async with opened(database_url) as database:

        async def one(topic: str, batch: int, effect: bool) -> float:
            return await inbox(bootstrap, topic, sizes[topic], database, batch=batch, effect=effect)

        variants: dict[str, Measured] = {
            "raw getmany": lambda: raw(bootstrap, large, sizes[large]),
            "batch inbox, no statement": lambda: one(large, 500, False),
            "batch inbox, a statement an event": lambda: one(large, 500, True),
            "one transaction an event": lambda: one(small, 1, True),
        }
        rates: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, variant in variants.items():
                rates[name].append(await variant())
                await database.pool.execute("TRUNCATE effect, milepost.inbox, milepost.consumer_position")
    return rates


def report(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Print the table and return what is written."""
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {
        "I1 batch inbox with a statement an event / raw getmany": medians["batch inbox, a statement an event"]
        / medians["raw getmany"],
        "inbox alone / raw getmany": medians["batch inbox, no statement"] / medians["raw getmany"],
        "I3 batch inbox / one transaction an event": medians["batch inbox, a statement an event"]
        / medians["one transaction an event"],
    }
    for name, found in rates.items():
        print(f"{name:<40} {medians[name]:>10,.0f} events/s   {min(found):>9,.0f} to {max(found):,.0f}")
    for name, ratio in ratios.items():
        print(f"{name:<60} {ratio:.3f}")
    return {"events_per_second": rates, "medians": medians, "ratios": ratios}


def main() -> None:
    """Measure and write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with postgres() as server, kafka() as broker, migrated_template(server) as template:
        with fresh_database(server, template) as url:
            found = report(asyncio.run(measure(url, broker.bootstrap, rounds)))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written: {OUT}")


if __name__ == "__main__":
    main()
