"""G1: what retained rows cost. The same rates in two databases, one with 100,000 rows kept in outbox and inbox each and
100,000 finished runs, the other with 2,000,000 rows and 1,000,000 runs (10,000,000 and 5,000,000 with --full).

Rates: transactions that publish one event, on one connection; the drain of a backlog; events through the inbox's
transactions, handed over from memory; steps of runs, likewise. What is judged is the worst of the four ratios.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import asyncpg
from milepost import publish
from milepost.inbox.consumer import Consumer
from milepost.outbox.store import Sql

from tests.support.inbox import IDS, Paid, intake_of, opened, record

from .flows import STEPS
from .harness import Bench, commit_rows
from .inboxes import together
from .kept_runs import keep_runs
from .live import Placed
from .sagas import by_hand

FEW = 100_000
OUTBOX = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
    " SELECT gen_random_uuid(), 'kept', 'kept', 'key-' || n % 997, 'kept', '{}', '{\"ce_specversion\": \"1.0\"}'"
    " FROM generate_series(1, $1::int) AS n"
)
#: Ids as those of version 7: in the order of time.
INBOX = (
    'INSERT INTO milepost.inbox (consumer, event_id, fingerprint, outcome, topic, partition, "offset")'
    " SELECT 'c', (lpad(to_hex($2::bigint + n), 12, '0') || '7000800000000000000'::text || '0')::uuid,"
    " sha256(n::text::bytea), 'APPLIED', 'kept', 0, n FROM generate_series(1, $1::int) AS n"
)
#: Everything kept counts as sent.
SENT = (
    "INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)"
    " SELECT 'outbox', 0, 1, s, s, 0, system_identifier"
    " FROM pg_control_system(), pg_current_snapshot() AS s"
)


@dataclass
class Kept:
    """A database with so many rows and runs kept."""

    url: str
    rows: int
    runs: int


async def keep(bench: Bench, kept: Kept) -> None:
    """Fill it, in transactions of 500,000 rows."""
    connection = await asyncpg.connect(kept.url)
    try:
        for start in range(0, kept.rows, 500_000):
            bench.say(f"G1 keeping {start:,} of {kept.rows:,}")
            some = min(500_000, kept.rows - start)
            await connection.execute(OUTBOX, some)
            await connection.execute(INBOX, some, start)
        await connection.execute(SENT)
        bench.say(f"G1 keeping {kept.runs:,} runs")
        await keep_runs(connection, kept.runs)
        await connection.execute("VACUUM (ANALYZE) milepost.outbox, milepost.inbox")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def published(bench: Bench, kept: Kept, count: int) -> float:
    """Transactions a second that publish one event each."""
    connection = await asyncpg.connect(kept.url)
    try:
        began = time.perf_counter()
        for n in range(count):
            async with connection.transaction():
                await publish(connection, Placed(order=f"o-{n}"))
        return count / (time.perf_counter() - began)
    finally:
        await connection.close()


async def drained(bench: Bench, kept: Kept, count: int) -> float:
    """Records a second of a backlog."""
    topic = await bench.topic()
    connection = await asyncpg.connect(kept.url)
    try:
        await connection.execute("DELETE FROM milepost.outbox_position")
        await connection.execute(SENT)
        async with bench.relay(kept.url):
            began, _ = await commit_rows(connection, topic, count)
            await bench.until_on_topic(topic, count)
            return count / (time.perf_counter() - began)
    finally:
        await connection.close()


async def ticked(kept: Kept) -> float:
    """Milliseconds of a tick that finds nothing new, the median of fifty."""
    connection = await asyncpg.connect(kept.url)
    try:
        since = await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        took = []
        for _ in range(50):
            began = time.perf_counter()
            await connection.execute(Sql.begin_read)
            await connection.fetch(Sql.read_new, since, [], 2000, 4_000_000)
            await connection.execute(Sql.end_read)
            took.append((time.perf_counter() - began) * 1000)
        return median(took)
    finally:
        await connection.close()


async def consumed(bench: Bench, kept: Kept, count: int, start: int) -> float:
    """Events a second through the inbox's transactions, 500 each."""

    class Here(Paid, type="test.paid", version=1, topic="t", key="order"):
        pass

    consumer = Consumer("c")
    consumer.on_batch(Here)(together)
    body: dict[str, Any] = {"order": "o-1", "amount": 1, "note": "x" * 440}
    records = [record(start + n, event_id=IDS.new(), body=body) for n in range(count)]
    async with opened(kept.url) as database:
        intake = intake_of(consumer, database)
        await intake.positions([("t", 0)])
        began = time.perf_counter()
        for at in range(0, count, 500):
            await intake.handle(records[at : at + 500])
        rate = count / (time.perf_counter() - began)
        await database.pool.execute("DROP TABLE effect")
        return rate


async def stepped(bench: Bench, kept: Kept, count: int) -> float:
    """Steps a second of a worker that is handed its messages from memory."""
    return await by_hand(bench, kept.url, count // STEPS, f"saga at {kept.runs:,} runs")


async def measure(bench: Bench) -> None:
    """Fill both, then run all rounds, in turns."""
    many, size = bench.sizes.retained, bench.sizes.part(0.5)
    async with bench.database() as first, bench.database() as second:
        small, large = Kept(first, min(FEW, many), min(FEW, many // 2)), Kept(second, many, many // 2)
        for kept in (small, large):
            await keep(bench, kept)
        for turn in range(bench.sizes.rounds):
            ratios = {}
            for name, share, rate in (
                ("publish", 0.02, published),
                ("drain", 1.0, drained),
                ("inbox", 0.4, consumed),
                ("steps", 0.04, stepped),
            ):
                found = []
                for kept in (small, large):
                    bench.say(f"G1 {name}, {kept.rows:,} rows kept")
                    count = max(500, int(size * share) // 500 * 500)
                    extra = (turn * count,) if rate is consumed else ()
                    value = await rate(bench, kept, count, *extra)
                    found.append(bench.rate(f"{name} at {kept.rows:,} rows, /s", value))
                ratios[name] = found[1] / found[0]
            bench.figure("G1", min(ratios.values()))
            for kept in (small, large):
                bench.rate(f"empty tick at {kept.rows:,} rows, ms", await ticked(kept))
