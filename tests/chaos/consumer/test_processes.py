"""Scenario 48 and interleaving 14 with real processes: asked to stop, asked twice, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database
from milepost.streams.topics import ensure_topics

from tests.support.inbox import Effects, committed, opened, paid, send
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
TABLES = (
    "CREATE TABLE run (n bigserial, text text, pid integer)",
    "CREATE TABLE gate (opened boolean)",
)


@dataclass
class World:
    """A topic, a database, and processes that consume."""

    kafka: str
    topic: str
    database: Database
    url: str

    @asynccontextmanager
    async def process(self, *, grace: str = "20s") -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a consumer process; it is gone afterwards."""
        path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH", ""), str(ROOT)) if part)
        env = {
            **os.environ,
            "PYTHONPATH": path,
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_GRACE": grace,
            "TOPIC": self.topic,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.apps.consumer_process",
            env=env,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def runs(self, text: str) -> int:
        """How often a handler began with this order."""
        return int(await self.database.pool.fetchval("SELECT count(*) FROM run WHERE text = $1", text))

    async def began(self, text: str, times: int = 1) -> None:
        """Wait until a handler has begun with this order so many times."""

        async def enough() -> bool:
            return await self.runs(text) >= times

        await until(enough, within=40, what=f"{text} begun {times} times")

    async def open_gate(self) -> None:
        """Let the waiting handlers go on."""
        await self.database.pool.execute("INSERT INTO gate VALUES (true)")

    async def applied(self, *orders: str) -> None:
        """Wait until exactly these orders have their effect."""
        effects = Effects(self.database.pool)

        async def same() -> bool:
            return await effects.orders() == list(orders)

        await until(same, within=40, what=f"the effects {orders}")


@pytest.fixture
async def world(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[World]:
    topic = f"{topic_prefix}.events"
    await ensure_topics(kafka, [topic], partitions=1)
    async with opened(database_url) as database:
        for statement in TABLES:
            await database.pool.execute(statement)
        yield World(kafka, topic, database, database_url)


async def test_sigterm_with_time_enough_finishes_and_commits(world: World) -> None:
    await send(world.kafka, world.topic, [paid("wait")])
    async with world.process() as process:
        await world.began("wait")
        process.terminate()
        await world.open_gate()
        assert await asyncio.wait_for(process.wait(), 15) == 0
    await world.applied("wait")
    assert await committed(world.kafka, world.topic) == {0: 1}
    assert await world.runs("wait") == 1


@pytest.mark.parametrize("twice", [False, True])
async def test_sigterm_with_too_little_time_hands_back(world: World, twice: bool) -> None:
    await send(world.kafka, world.topic, [paid("first"), paid("wait")])
    clock = SystemClock()
    async with world.process(grace="60s" if twice else "2s") as process:
        await world.began("wait")
        began = clock.monotonic()
        process.terminate()
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 10) == b"asked to stop\n"
        if twice:
            process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0
        assert clock.monotonic() - began < 15
    assert await committed(world.kafka, world.topic) == {}
    await world.applied()
    assert await world.database.pool.fetchval("SELECT count(*) FROM milepost.inbox") == 0
    await world.open_gate()
    async with world.process():
        await world.applied("first", "wait")
    assert await world.database.pool.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0


async def test_sigkill_in_a_handler_leaves_one_effect(world: World) -> None:
    await send(world.kafka, world.topic, [paid("first"), paid("wait"), paid("last")])
    async with world.process() as process:
        await world.began("wait")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await world.applied()
    await world.open_gate()
    async with world.process():
        await world.applied("first", "wait", "last")
    assert await world.database.pool.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0


async def test_an_event_that_kills_its_process_is_parked_and_the_others_are_applied(world: World) -> None:
    await send(world.kafka, world.topic, [paid("first"), paid("die"), paid("last")])
    for times in range(1, 4):
        async with world.process() as process:
            await world.began("die", times)
            assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    async with world.process():
        await world.applied("first", "last")
    (letter,) = await world.database.pool.fetch("SELECT code, attempts FROM milepost.dead_letter")
    assert tuple(letter) == ("PROCESS_DIED", 2)
    assert await world.runs("die") == 3, "once in a batch, twice alone"
