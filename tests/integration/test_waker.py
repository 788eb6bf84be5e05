"""What a tick of the waker writes, and that each due row gets it once, whoever else is at work."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.consumers.waker import Waker
from milepost.outbox.model import OutboxRow, message_row
from milepost.schemas.errors import StateError
from milepost.schemas.ids import ManualClock, SystemClock, SystemIds
from milepost.schemas.messages import TimerMessage, timers_topic
from milepost.streams.lifecycle import Stop

from tests.support.engine import rig
from tests.support.outbox import connected
from tests.support.waiting import until

ODD = (
    "",
    "plain",
    'a "quote", a back\\slash, a sl/ash',
    "".join(map(chr, (*range(1, 32), 127, 128, 159))),
    "ü ß € \u2028 \u2029 \ufeff \U0001f600",
    "%s {0} $1 :x <b>&amp;</b> null",
)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
DUE = datetime(2026, 1, 1, tzinfo=UTC)
RUN = (
    "INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, state, wake_at,"
    " correlation_id, traceparent) VALUES ($1, $2, 'rig', 'order', '', 1, '', '', '{}', 'WAITING', $3, $4, $5)"
)
STEP = (
    "INSERT INTO milepost.step (run_id, name, iteration, generation, n, kind, state, wake_at, since)"
    " VALUES ($1, $2, $3, $4, 1, 'WAIT', 'WAITING', $5, $5)"
)
OUTBOX = (
    "SELECT id, tenant, topic, aggregatetype, aggregateid, type, payload, headers::text AS headers"
    " FROM milepost.outbox ORDER BY seq"
)
IDS = SystemIds()


@dataclass
class Given:
    """Ids of which one is known."""

    id: UUID

    def new(self) -> UUID:
        return self.id


async def stopped(connection: asyncpg.Connection[Any], instant: datetime) -> None:
    """Stop milepost.clock() at an instant."""
    await connection.execute(
        "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
        f"$$ SELECT timestamptz '{instant.isoformat()}' $$"
    )


async def written(pool: asyncpg.Pool[Any]) -> list[OutboxRow]:
    """The rows of the outbox in order."""
    rows = [dict(row) for row in await pool.fetch(OUTBOX)]
    return [OutboxRow(**{**row, "headers": json.loads(row["headers"])}) for row in rows]


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2026, 11, 29, 20, 3, 17, 130320, UTC),
        datetime(2026, 11, 29, 20, 3, 17, 0, UTC),
        datetime(2026, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(2027, 1, 1, 0, 0, 0, 1, UTC),
    ],
)
async def test_a_tick_writes_what_python_would(database_url: str, instant: datetime) -> None:
    async with connected(database_url) as (connection,):
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
        await stopped(connection, instant)
        wanted: list[tuple[TimerMessage, str, str, str | None]] = []
        for n, odd in enumerate(ODD):
            trace = (None, "", TRACE)[n % 3]
            # One run is due itself, the other by its step.
            own, other = IDS.new(), IDS.new()
            await connection.execute(RUN, own, odd, DUE, odd, trace)
            await connection.execute(RUN, other, odd, instant + timedelta(microseconds=1), odd, trace)
            generation = 2**62 * (n % 2)
            await connection.execute(STEP, other, odd, odd, generation, instant)
            wanted.append((TimerMessage(run=own, step=None, generation=0), odd, odd, trace))
            message = TimerMessage(run=other, step=odd, iteration=odd, generation=generation)
            wanted.append((message, odd, odd, trace))
    async with rig(database_url) as it:
        assert await it.waker.tick() == len(wanted)
        assert await it.waker.tick() == 0
        rows = {row.aggregateid: row for row in await written(it.database.pool)}
        pushed = await it.value(
            "SELECT array_agg(DISTINCT wake_at) FROM (SELECT wake_at FROM milepost.step"
            " UNION ALL SELECT wake_at FROM milepost.run WHERE id NOT IN (SELECT run_id FROM milepost.step)) AS r"
        )
    assert pushed == [instant + it.service.settings.nudge]
    assert len(rows) == len(wanted)
    for message, tenant, correlation_id, trace in wanted:
        row = rows[str(message.run)]
        assert row == message_row(
            message,
            topic=timers_topic("rig"),
            key=str(message.run),
            ids=Given(row.id),
            clock=ManualClock(instant),
            tenant=tenant,
            service="rig",
            correlation_id=correlation_id,
            traceparent=trace,
        )
        assert TimerMessage.model_validate_json(row.payload or b"") == message


async def test_ids_are_version_7_and_ascend(database_url: str) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    async with rig(database_url) as it:
        await fill(it.database.pool, 300)
        assert await it.waker.tick() == 600
        ids: list[UUID] = await it.value("SELECT array_agg(id ORDER BY seq) FROM milepost.outbox")
    assert ids == sorted(set(ids)) and len(ids) == 600
    assert {(found.version, found.variant) for found in ids} == {(7, "specified in RFC 4122")}
    made = datetime.fromtimestamp((ids[0].int >> 80) / 1000, UTC)
    assert before <= made <= datetime.now(UTC)


async def fill(pool: asyncpg.Pool[Any], count: int) -> None:
    """Runs that are due, each with a step that is due."""
    ids = [IDS.new() for _ in range(count)]
    await pool.executemany(RUN, [(run, "", DUE, "c", None) for run in ids])
    await pool.executemany(STEP, [(run, "arrived", "", 0, DUE) for run in ids])


async def test_each_row_fires_once_with_several_wakers_and_others_at_work(database_url: str) -> None:
    """Rows change while they are claimed, and sessions are cut in the middle of a tick."""
    dice, count, cuts = random.Random(7), 1500, 0
    async with rig(database_url) as it:
        pool = it.database.pool
        await fill(pool, count)
        stop = Stop(SystemClock(), timedelta(seconds=5))

        async def change() -> None:
            async with connected(database_url) as (own,):
                while not stop.asked:
                    some = f"id::text > '{dice.randbytes(1).hex()}' LIMIT 50"
                    runs = await own.fetchval(
                        f"SELECT array_agg(id) FROM (SELECT id FROM milepost.run WHERE {some}) r"
                    )
                    await own.execute(
                        "UPDATE milepost.step SET generation = generation + 1 WHERE run_id = ANY ($1)", runs
                    )
                    await own.execute(
                        "UPDATE milepost.run SET version = version + 1 WHERE id = ANY ($1)", runs
                    )

        async def cut() -> None:
            nonlocal cuts
            async with connected(database_url) as (own,):
                while not stop.asked and cuts < 4:
                    await asyncio.sleep(dice.uniform(0.0, 0.05))
                    cuts += await own.fetchval(
                        "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
                        " WHERE state = 'active' AND datname = current_database() AND query LIKE 'WITH tick%'"
                        " LIMIT 1) AS one"
                    )

        async def fired() -> bool:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                return bool(await it.value("SELECT count(*) >= $1 FROM milepost.outbox", 2 * count))
            return False

        wakers = [Waker(it.engine, push=timedelta(hours=1), sweep_every=timedelta(hours=1)) for _ in range(3)]
        tasks = [
            asyncio.create_task(one) for one in (change(), cut(), *(waker.run(stop) for waker in wakers))
        ]
        try:
            await until(fired, within=60, what="all to fire")
        finally:
            stop.ask()
            await asyncio.gather(*tasks)
        assert cuts and await it.waker.tick() == 0
        bodies = await it.outgoing("milepost.timer")
        generations = dict(await pool.fetch("SELECT run_id::text, generation FROM milepost.step"))
    times = Counter((body["run"], body["step"]) for body in bodies)
    assert len(times) == 2 * count and set(times.values()) == {1}
    late = [body for body in bodies if body["step"] and body["generation"] > generations[body["run"]]]
    assert not late, "of the generation that was claimed, not of a later one"


async def test_without_a_partition_it_says_what_to_do(database_url: str) -> None:
    async with rig(database_url) as it:
        await fill(it.database.pool, 1)
        for row in await it.database.pool.fetch(
            "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'milepost.outbox'::regclass"
        ):
            await it.database.pool.execute(f"DROP TABLE {row['name']}")
        with pytest.raises(StateError, match=r"MP410.*milepost migrate"):
            await it.waker.tick()
        assert await it.value("SELECT wake_at FROM milepost.step") == DUE, "still due"
