"""Scenario 33: timers that became due while everything was down fire once each; a database that goes away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from milepost.devstack.postgres import Postgres
from milepost.streams.migrate import migrate

from tests.support.apps.ledger import ask, booked, parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import served
from tests.support.waiting import until

WAITING = int(os.environ.get("MILEPOST_TEST_WAITS", "300"))
HALF = ("relay,orchestrator,waker,upkeep", "worker,compensator,signals,consumers")
UNDONE = ["pay", "send", "call back", "repay"]


async def test_timers_due_during_downtime_fire_once_each(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        # Nothing is due for an hour; the clock is put forward while nobody runs. Messages are announced again only
        # after half a minute, so that each repeat would be seen.
        env = stage.env(LEDGER_WAIT=3600, MILEPOST_NUDGE="30s")
        runs = [await stage.start(parcel, f"p-{n}") for n in range(WAITING)]
        async with served(env, *HALF) as processes:
            waiting = "SELECT count(*) = $1 FROM milepost.step WHERE kind = 'WAIT' AND state = 'WAITING'"
            await until(
                lambda: stage.pool.fetchval(waiting, WAITING),
                within=60 + WAITING / 10,
                what="all runs to wait",
            )
            for process in processes:
                await process.kill()
        await stage.pool.execute(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
            "$$ SELECT clock_timestamp() + interval '2 hours' $$"
        )
        async with served(env, *HALF):
            ended = await stage.resting(runs, within=60 + WAITING / 5)
        assert ended == {"COMPENSATED": WAITING}
        for run in runs:
            assert await stage.effects(run) == UNDONE, await stage.story(run)
        once = "SELECT count(*) FROM milepost.history WHERE event = 'wait.timed_out' GROUP BY run_id"
        assert [row["count"] for row in await stage.pool.fetch(once)] == [1] * WAITING
        per_timer = (
            "SELECT count(*) FROM milepost.outbox WHERE type = 'milepost.timer' "
            "AND convert_from(payload, 'UTF8')::jsonb ->> 'step' = 'arrived'"
        )
        assert await stage.pool.fetchval(per_timer) == WAITING, "one message for each timer"
        # At a bounded rate: a tick takes at most 500 and the next comes after a pause.
        per_tick = (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM milepost.outbox WHERE type = 'milepost.timer' "
            "GROUP BY xid) AS ticks"
        )
        assert await stage.pool.fetchval(per_tick) <= 500


@pytest.fixture
async def own_server() -> AsyncIterator[Postgres]:
    """A PostgreSQL server that this test may end."""
    server = Postgres()
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


async def start_all(stage: Stage, count: int) -> tuple[list[UUID], list[UUID]]:
    """Start parcels that are never delivered, and runs that simply end."""
    parcels = [await stage.start(parcel, f"p-{n}") for n in range(count)]
    others = [await stage.start(saga, f"o-{n}") for n in range(count) for saga in (safe, ask, booked)]
    return parcels, others


@asynccontextmanager
async def database_down(server: Postgres, seconds: float) -> AsyncIterator[None]:
    """Take the database away for a while, its sessions cut off."""
    await asyncio.to_thread(server.stop, "immediate")
    try:
        yield
        await asyncio.sleep(seconds)  # how long it is away is what is tested
    finally:
        await asyncio.to_thread(server.start)


async def test_a_database_that_goes_away_changes_no_outcome(
    own_server: Postgres, kafka: str, topic_prefix: str
) -> None:
    url = own_server.create_database("ledger")
    await migrate(url)
    async with staged(url, kafka, topic_prefix) as stage:
        async with served(stage.env(LEDGER_WAIT=5), *HALF) as processes:
            parcels, others = await start_all(stage, 30)
            some = "SELECT count(*) > 20 FROM effect"
            await until(lambda: stage.pool.fetchval(some), within=60, what="the runs to be under way")
            async with database_down(own_server, 6):
                pass
            ended = await stage.resting(parcels + others, within=120)
            assert not any(process.ended for process in processes), "a process ended"
        assert ended == {"COMPENSATED": len(parcels), "SUCCEEDED": len(others)}
        for run in parcels:
            assert await stage.effects(run) == UNDONE, await stage.story(run)
        for run in others:
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
