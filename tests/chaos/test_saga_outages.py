"""What runs depend on goes away for a while: processes recover by themselves and every outcome stays right."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest
from milepost.devstack.databases import at
from milepost.devstack.kafka import Kafka
from milepost.devstack.postgres import Postgres
from milepost.streams.migrate import migrate

from tests.support.apps.ledger import ask, booked, never, parcel, safe
from tests.support.apps.ledger_stage import STAGE, Stage, staged
from tests.support.process import served
from tests.support.waiting import until

HALF = ("relay,orchestrator,waker,upkeep", "worker,compensator,signals,consumers")
UNDONE = ["pay", "send", "call back", "repay"]


@pytest.fixture
async def own_server() -> AsyncIterator[Postgres]:
    """A PostgreSQL server that this test may end."""
    server = Postgres()
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


@pytest.fixture
async def own_broker() -> AsyncIterator[Kafka]:
    """A broker that this test may end."""
    server = Kafka()
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


async def check(stage: Stage, parcels: list[UUID], others: list[UUID]) -> None:
    """All parcels came back, all others went through, each effect once."""
    ended = await stage.resting(parcels + others, within=120)
    assert ended == {"COMPENSATED": len(parcels), "SUCCEEDED": len(others)}
    for run in parcels:
        assert await stage.effects(run) == UNDONE, await stage.story(run)
    for run in others:
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)


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
            await asyncio.to_thread(own_server.stop, "immediate")
            await asyncio.sleep(6)  # longer than the lease: how long it is away is what is tested
            await asyncio.to_thread(own_server.start)
            await check(stage, parcels, others)
            assert not any(process.ended for process in processes), "a process ended"


async def test_a_broker_that_goes_away_changes_no_outcome(
    own_broker: Kafka, database_url: str, topic_prefix: str
) -> None:
    async with staged(database_url, own_broker.bootstrap, topic_prefix) as stage:
        async with served(stage.env(LEDGER_WAIT=5), *HALF) as processes:
            parcels, others = await start_all(stage, 30)
            some = "SELECT count(*) > 20 FROM effect"
            await until(lambda: stage.pool.fetchval(some), within=60, what="the runs to be under way")
            await asyncio.to_thread(own_broker.kill)
            await asyncio.sleep(6)  # longer than the lease: how long it is away is what is tested
            await asyncio.to_thread(own_broker.start)
            await check(stage, parcels, others)
            assert not any(process.ended for process in processes), "a process ended"


@asynccontextmanager
async def read_only(url: str) -> AsyncIterator[None]:
    """Take the right to write from every session but the test's own, as after a switch to a standby."""
    name = url.rpartition("/")[2]
    admin = await asyncpg.connect(at(url, "postgres"))
    cut_off = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name <> $2"
    )
    try:
        await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await admin.fetch(cut_off, name, STAGE)
        yield
        await admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await admin.fetch(cut_off, name, STAGE)
    finally:
        await admin.close()


async def test_an_outcome_known_while_the_database_cannot_be_written_is_kept(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    sagas = {"safe": safe, "ask": ask, "never": never}
    async with staged(database_url, kafka, topic_prefix) as stage:
        for name in sagas:
            await stage.fault(name, "act", "after", "hold")
        # A lease that outlives the trouble: the worker still holds what it has begun.
        async with served(stage.env(MILEPOST_LEASE="60s"), *HALF) as processes:
            runs = {name: await stage.start(saga, name) for name, saga in sagas.items()}
            for name in sagas:
                await stage.reached(name, "act", "after")
            async with read_only(database_url):
                for name in sagas:
                    await stage.release(name, "act", "after")
                await stage.deliver("meanwhile")
                await asyncio.sleep(4)  # the calls return meanwhile: how long it lasts is what is tested
            assert not any(process.ended for process in processes), "a process ended"
            assert await stage.resting(list(runs.values()), within=60) == {"SUCCEEDED": 3}
            noted = "SELECT count(*) FROM effect WHERE what = 'noted'"
            await until(lambda: stage.pool.fetchval(noted), within=60, what="the consumer to apply the event")
            assert await stage.pool.fetchval(noted) == 1
            assert await stage.pool.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0
        for name, run in runs.items():
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
            assert await stage.calls(run, "act") == 1, f"{name} was called again though its outcome was known"


async def test_a_stop_while_the_database_is_away_ends_in_time(
    own_server: Postgres, kafka: str, topic_prefix: str
) -> None:
    url = own_server.create_database("ledger")
    await migrate(url)
    async with staged(url, kafka, topic_prefix) as stage:
        env = stage.env(MILEPOST_GRACE="4s")
        await stage.fault("s", "act", "after", "hold")
        async with served(env) as (process,):
            run = await stage.start(safe, "s")
            await stage.reached("s", "act", "after")
            await asyncio.to_thread(own_server.stop, "immediate")
            process.send(signal.SIGTERM)
            # The grace time, and what handing back, closing and flushing may take.
            await process.wait(within=20)
            await asyncio.to_thread(own_server.start)
        await stage.release("s", "act", "after")
        async with served(env):
            assert await stage.resting([run], within=60) == {"SUCCEEDED": 1}
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
