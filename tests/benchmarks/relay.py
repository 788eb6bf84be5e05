"""How fast the relay empties an outbox, beside raw aiokafka and a naive relay, in one run.

Run it with `python -m tests.benchmarks.relay`; MILEPOST_TEST_DATABASE_URL and MILEPOST_TEST_KAFKA may name servers.
Every variant sends the same records; what is counted is what lies on the topic. Rates drift between machines and
hours, ratios in one run do not: variants take turns, and the median of the rounds is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from milepost.outbox.encode import BATCH_BYTES, partition_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support import servers
from tests.support.outbox import make_topics, relaying

PARTITIONS, KEYS, VALUE = 4, 997, b"x" * 500
ROOT = Path(__file__).resolve().parents[2]
#: Targets by id: floor and stretch of a ratio of medians.
TARGETS = {"R1": (1.5, 2.2), "R2": (0.40, 0.65), "R3": (4.0, 8.0)}
HEADERS = {
    "ce_specversion": "1.0",
    "ce_id": "01a228f2-0792-7621-939c-62fc03f302e5",
    "ce_source": "shop",
    "ce_type": "shop.order-placed",
    "ce_time": "2026-11-29T20:03:17.130320+00:00",
    "ce_eventversion": "1",
    "content-type": "application/json",
}
ENCODED = [(name, text.encode()) for name, text in HEADERS.items()]
FILL = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
    " SELECT gen_random_uuid(), $1, $1, 'key-' || n % $2, 'shop.order-placed', $3, $4::text::jsonb"
    " FROM generate_series(1, $5::int) AS n"
)


@dataclass
class Bench:
    """What the variants need.

    Attributes:
        count: Records of a round.
        rates: Records per second, by variant and round.
        cpu: Seconds of processor time of this process per 100,000 records, by variant and round.
    """

    url: str
    kafka: str
    connection: asyncpg.Connection[Any]
    consumer: AIOKafkaConsumer
    count: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    async def on_topic(self, topic: str) -> int:
        """Records that lie on a topic."""
        ends = await self.consumer.end_offsets([TopicPartition(topic, n) for n in range(PARTITIONS)])
        return sum(ends.values())

    async def measure(self, name: str, variant: Variant, count: int) -> None:
        """Run a variant once on a topic and outbox of its own."""
        topic = f"bench{secrets.token_hex(6)}"
        await make_topics(self.kafka, topic, partitions=PARTITIONS)
        ready = await variant(self, topic, count)
        used, started = time.process_time(), time.perf_counter()
        await ready()
        took, used = time.perf_counter() - started, time.process_time() - used
        arrived = await self.on_topic(topic)
        assert arrived == count, f"{name}: {arrived} of {count} arrived"
        self.rates.setdefault(name, []).append(count / took)
        self.cpu.setdefault(name, []).append(used * 100_000 / count)


Variant = Callable[["Bench", str, int], Awaitable[Callable[[], Awaitable[None]]]]


def keys(count: int) -> list[bytes]:
    """Record keys of a round."""
    return [f"key-{n % KEYS}".encode() for n in range(1, count + 1)]


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


async def raw_send(bench: Bench, topic: str, count: int) -> Callable[[], Awaitable[None]]:
    """aiokafka send(), record by record."""
    producer, all_keys = await producer_of(bench), keys(count)

    async def run() -> None:
        sent = [await producer.send(topic, VALUE, key=key, headers=ENCODED) for key in all_keys]
        await asyncio.gather(*sent)
        await producer.stop()

    return run


async def raw_batches(bench: Bench, topic: str, count: int) -> Callable[[], Awaitable[None]]:
    """aiokafka send_batch(), whole batches from memory."""
    producer, all_keys = await producer_of(bench), keys(count)

    async def run() -> None:
        sent, batches = [], {n: producer.create_batch() for n in range(PARTITIONS)}
        for key in all_keys:
            partition = partition_of(key, PARTITIONS)
            record: dict[str, Any] = {"timestamp": None, "key": key, "value": VALUE, "headers": ENCODED}
            if batches[partition].append(**record) is None:
                sent.append(await producer.send_batch(batches[partition], topic, partition=partition))
                batches[partition] = producer.create_batch()
                batches[partition].append(**record)
        for partition, batch in batches.items():
            sent.append(await producer.send_batch(batch, topic, partition=partition))
        await asyncio.gather(*sent)
        await producer.stop()

    return run


async def fill(bench: Bench, topic: str, count: int) -> None:
    """Commit the round's rows."""
    await bench.connection.execute("TRUNCATE milepost.outbox, milepost.outbox_position")
    await bench.connection.execute(FILL, topic, KEYS, VALUE, json.dumps(HEADERS), count)
    await bench.connection.execute("CHECKPOINT")


async def naive_relay(bench: Bench, topic: str, count: int) -> Callable[[], Awaitable[None]]:
    """What is often written: a transaction held while a page of 100 is sent and waited for, then DELETE."""
    await fill(bench, topic, count)
    producer = await producer_of(bench)

    async def page() -> bool:
        async with bench.connection.transaction():
            rows = await bench.connection.fetch(
                "SELECT id, aggregateid, payload, headers FROM milepost.outbox ORDER BY seq LIMIT 100 FOR UPDATE"
            )
            sent = []
            for row in rows:
                headers = [(name, text.encode()) for name, text in json.loads(row["headers"]).items()]
                key = row["aggregateid"].encode()
                sent.append(await producer.send(topic, row["payload"], key=key, headers=headers))
            await asyncio.gather(*sent)
            await bench.connection.execute(
                "DELETE FROM milepost.outbox WHERE id = ANY ($1::uuid[])", [row["id"] for row in rows]
            )
            return bool(rows)

    async def run() -> None:
        while await page():
            pass
        await producer.stop()

    return run


async def relay(bench: Bench, topic: str, count: int) -> Callable[[], Awaitable[None]]:
    """Milepost's relay, from its start to the last record on the topic."""
    await fill(bench, topic, count)

    async def run() -> None:
        async with relaying(bench.url, bench.kafka):
            while await bench.on_topic(topic) < count:
                await asyncio.sleep(0.03)

    return run


VARIANTS: dict[str, tuple[Variant, float]] = {
    "relay": (relay, 1.0),
    "raw send()": (raw_send, 1.0),
    "raw send_batch()": (raw_batches, 1.0),
    "naive relay": (naive_relay, 0.1),
}


def ratios(rates: dict[str, float]) -> dict[str, float]:
    """Return the targets' figures."""
    return {
        "R1": rates["relay"] / rates["raw send()"],
        "R2": rates["relay"] / rates["raw send_batch()"],
        "R3": rates["relay"] / rates["naive relay"],
    }


async def run(url: str, kafka: str, count: int, rounds: int, progress: Progress) -> dict[str, Any]:
    """Run all rounds and return the figures."""
    connection = await asyncpg.connect(url)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
    await consumer.start()
    try:
        bench = Bench(url, kafka, connection, consumer, count)
        task = progress.add_task("measuring", total=rounds * len(VARIANTS))
        for _ in range(rounds):
            for name, (variant, part) in VARIANTS.items():
                progress.update(task, description=name)
                await bench.measure(name, variant, max(1, int(count * part)))
                progress.advance(task)
    finally:
        await consumer.stop()
        await connection.close()
    medians = {name: median(found) for name, found in bench.rates.items()}
    return {
        "records": count,
        "rounds": rounds,
        "rates": bench.rates,
        "median_rates": medians,
        "cpu_s_per_100k": {name: median(found) for name, found in bench.cpu.items()},
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ratios": ratios(medians),
        "targets": TARGETS,
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print the tables."""
    table = Table(
        title=f"{result['records']:,} records of 500 bytes, {KEYS} keys, median of {result['rounds']}"
    )
    for column in ("variant", "records/s", "min", "max", "CPU s / 100k"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, rates in result["rates"].items():
        low, high, middle = min(rates), max(rates), result["median_rates"][name]
        table.add_row(
            name, *(f"{rate:,.0f}" for rate in (middle, low, high)), f"{result['cpu_s_per_100k'][name]:.2f}"
        )
    console.print(table)
    judged = Table(title="against the targets")
    for column in ("id", "ratio", "floor", "stretch", ""):
        judged.add_column(column, justify="right")
    for name, ratio in result["ratios"].items():
        floor, stretch = TARGETS[name]
        word = "stretch" if ratio >= stretch else "floor" if ratio >= floor else "below"
        judged.add_row(name, f"{ratio:.2f}", f"{floor:g}", f"{stretch:g}", word)
    console.print(judged)


def main() -> None:
    """Parse arguments, run, print, write build/bench-relay.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=int(os.environ.get("MILEPOST_BENCH_RECORDS", "100000"))
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    console = Console()
    with servers.postgres() as database, servers.kafka() as broker:
        with (
            servers.migrated_template(database) as template,
            servers.fresh_database(database, template) as url,
        ):
            with Progress(console=console, transient=True) as progress:
                result = asyncio.run(run(url, broker.bootstrap, options.records, options.rounds, progress))
    show(result, console)
    target = ROOT / "build" / "bench-relay.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"written: {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
