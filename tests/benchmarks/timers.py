"""T1: timers that fire, beside plain inserts of as many rows.

A timer is `wake_at` of a step. The waker takes what is due, pushes it and writes its message to the outbox in one
transaction; 20,000 are due at once. Beside it 500 rows a transaction are inserted from arrays in memory. Lateness is
from the instant at which a timer is due to its outbox row, by the database's clock, with 1,000 timers a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
from milepost import Milepost
from milepost.consumers.engine import Engine, changes_of
from milepost.consumers.waker import Waker
from milepost.schemas.ids import SystemClock
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

from .harness import IDS, Bench, headers, percentile

#: Runs that wait, and the step that each waits in; due one after another from $2 on, $3 apart.
RUNS = (
    "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at,"
    " correlation_id) SELECT gen_random_uuid(), 'bench', 'order', 'o-' || n, 1, '', '', '{}', 'WAITING',"
    " now() + interval '1 day', 'o-' || n FROM generate_series(1, $1::int) AS n"
)
STEPS = (
    "INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since)"
    " SELECT id, 'delivered', 1, 'WAIT', 'WAITING', due, due FROM (SELECT id,"
    " $1::timestamptz + (row_number() OVER ()) * $2::interval AS due FROM milepost.run) AS r"
)
TABLES = ("milepost.run", "milepost.step", "milepost.outbox")
#: A sequence costs nothing to look at; the rows themselves are counted once, afterwards.
FIRED = "SELECT last_value - $1::bigint FROM milepost.outbox_seq"
COUNT = "SELECT count(*) FROM milepost.outbox"
LATE = (
    "SELECT extract(epoch FROM o.created_at - s.since)::float8 * 1000 AS ms"
    " FROM milepost.outbox AS o JOIN milepost.step AS s ON s.run_id = o.aggregateid::uuid"
)
INSERT = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
    " SELECT id, 'bench.timers', 'bench.timers', key, 'milepost.timer', body, headers::jsonb"
    " FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[]) AS r (id, key, body, headers)"
)


async def unnest(connection: asyncpg.Connection, count: int) -> float:
    """Rows a second, 500 a transaction."""
    ids = [IDS.new() for _ in range(500)]
    body = b'{"run":"01a228f2-0792-7621-939c-62fc03f302e5","step":"delivered","iteration":"","generation":0}'
    columns = (ids, [str(one) for one in ids], [body] * 500, [json.dumps(headers(one)) for one in ids])
    began = time.perf_counter()
    for _ in range(count // 500):
        await connection.execute(INSERT, *columns)
    return count / (time.perf_counter() - began)


async def woken(waker: Waker, connection: asyncpg.Connection, count: int, within: float) -> float:
    """Run the waker until so many messages are in the outbox; returns seconds."""
    stop = Stop(SystemClock(), timedelta(seconds=5))
    before = await connection.fetchval(FIRED, 0)
    began = time.perf_counter()
    task = asyncio.create_task(waker.run(stop))
    try:
        while (fired := await connection.fetchval(FIRED, before)) < count:
            assert time.perf_counter() - began < within, f"{fired} of {count} timers fired in {within:g} s"
            await asyncio.sleep(0.01)
        while (fired := await connection.fetchval(COUNT)) < count:
            await asyncio.sleep(0.01)
        assert fired == count, f"{fired} messages of {count} timers"
        return time.perf_counter() - began
    finally:
        stop.ask()
        with suppress(asyncio.CancelledError):
            await task


async def seeded(connection: asyncpg.Connection, count: int, start: timedelta, apart: timedelta) -> None:
    """Make runs with a timer each, the first due after `start`."""
    await connection.execute(f"TRUNCATE {', '.join(TABLES)}")
    await connection.execute(RUNS, count)
    first = await connection.fetchval("SELECT clock_timestamp() + $1::interval", start)
    await connection.execute(STEPS, first, apart)
    await connection.execute("ANALYZE milepost.run, milepost.step")
    await connection.execute("CHECKPOINT")


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    count = bench.sizes.part(0.2) // 500 * 500 or 500
    steady = max(500, min(5000, bench.sizes.part(0.05)))
    async with bench.database() as url:
        given: dict[str, Any] = {"database_url": url}
        database = Database(Settings(**given))
        await database.open()
        connection = await asyncpg.connect(url)
        try:
            engine = Engine(changes_of(Milepost("bench", settings=database.settings)), database.pool)
            for _ in range(bench.sizes.rounds):
                waker = Waker(engine, push=timedelta(hours=1), sweep_every=timedelta(hours=1))
                bench.say("T1 unnest inserts")
                await seeded(connection, 500, timedelta(hours=1), timedelta())
                bare = bench.rate("unnest inserts, rows/s", await unnest(connection, count))
                bench.say("T1 timers due at once")
                await seeded(connection, count, timedelta(seconds=-1), timedelta())
                took = await woken(waker, connection, count, 120)
                bench.figure("T1", bench.rate("timers fired/s", count / took) / bare)
                bench.say("T1 lateness at 1,000/s")
                await seeded(connection, steady, timedelta(seconds=0.5), timedelta(milliseconds=1))
                await woken(waker, connection, steady, 120)
                late = [row["ms"] for row in await connection.fetch(LATE)]
                assert len(late) == steady, f"{len(late)} messages of {steady} timers"
                bench.figure("T1.p99", percentile(late, 0.99))
        finally:
            await connection.close()
            await database.close()
