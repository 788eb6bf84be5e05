"""Relay and consumers killed at random under load, with clocks that are minutes off: nothing lost, nothing doubled,
no account's steps out of order, on the topic and in the effects.

MILEPOST_CHAOS=long kills fifty times; MILEPOST_CHAOS_SEED repeats one order of kills.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import asyncpg
import pytest
from milepost import Event, publish
from milepost.schemas.ids import SystemClock
from milepost.streams.topics import ensure_topics

from tests.support.outbox import arrived
from tests.support.process import Supervised, supervising
from tests.support.waiting import until

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
SEED = int(os.environ.get("MILEPOST_CHAOS_SEED", "20261129"))
KILLS = 50 if LONG else 6
ACCOUNTS = [f"a-{n}" for n in range(12)]


class Moved(Event, type="flow.moved", version=1, topic="unused", key="account"):
    """What tests/support/apps/flow_service.py consumes."""

    account: str
    step: int


@dataclass
class Flow:
    """A service's database, topic and variables."""

    pool: asyncpg.Pool
    kafka: str
    name: str
    env: dict[str, str]
    written: int = 0

    async def write(self, stop: asyncio.Event) -> None:
        """Publish steps, each account's under its lock, until asked to stop."""
        steps = dict.fromkeys(ACCOUNTS, 0)
        topic = f"{self.name}.moves"
        while not stop.is_set():
            async with self.pool.acquire() as connection, connection.transaction():
                events = [Moved(account=account, step=steps[account]) for account in ACCOUNTS]
                await publish(connection, *events, topic=topic, lock_key=True)
            for account in ACCOUNTS:
                steps[account] += 1
            self.written += len(ACCOUNTS)
            await passed(0.02)

    async def applied(self) -> bool:
        """Whether every written step has an effect."""
        count = await self.pool.fetchval("SELECT count(DISTINCT (account, step)) FROM effect")
        return bool(count >= self.written)


@pytest.fixture
async def flow(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[Flow]:
    await ensure_topics(kafka, [f"{topic_prefix}.moves"], partitions=4)
    env = {
        "MILEPOST_APP": "tests.support.apps.flow_service:service",
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_LEASE": "3s",
        "FLOW": topic_prefix,
    }
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(
            "CREATE TABLE effect (n bigserial PRIMARY KEY, account text NOT NULL, step integer NOT NULL)"
        )
        yield Flow(pool, kafka, topic_prefix, env)


async def passed(seconds: float) -> None:
    """Wait for a stretch of time: the load and the kills are spread over it."""
    clock = SystemClock()
    began = clock.monotonic()
    await until(
        lambda: clock.monotonic() - began > seconds, within=seconds + 10, every=min(0.05, seconds / 4)
    )


def in_order(steps: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the steps of each account in the given order, later copies left out."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for account, step in steps:
        found[account].setdefault(step)
    return {account: list(seen) for account, seen in found.items()}


async def test_random_kills_of_relay_and_consumers_under_load(flow: Flow) -> None:
    dice = random.Random(SEED)
    skews = [("relay", -7), ("consumers", 9), ("consumers", -6), ("relay", 4)]
    processes = [Supervised({**flow.env, "SKEW_MINUTES": str(minutes)}, role) for role, minutes in skews]
    async with supervising(processes):
        for process in processes:
            await process.ready()
        stop = asyncio.Event()
        writing = asyncio.create_task(flow.write(stop))
        for _ in range(KILLS):
            await passed(dice.uniform(0.2, 3.0))
            dice.choice(processes).now.send(signal.SIGKILL)
        stop.set()
        await writing
        await until(flow.applied, within=120, what="an effect of every step", every=0.25)
    effects = await flow.pool.fetch("SELECT account, step FROM effect ORDER BY n")
    expected = {account: list(range(flow.written // len(ACCOUNTS))) for account in ACCOUNTS}
    assert len(effects) == flow.written, "no effect is there twice"
    assert in_order((row["account"], row["step"]) for row in effects) == expected
    assert in_order(await on_topic(flow)) == expected
    assert await flow.pool.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0
    assert sum(len(process) for process in processes) >= len(processes) + KILLS // 2, (
        "they were really killed"
    )


async def on_topic(flow: Flow) -> list[tuple[str, int]]:
    """Return the steps on the topic, partition by partition, in their order."""
    records = (await arrived(flow.kafka, f"{flow.name}.moves")).all()
    bodies = [json.loads(record.value) for record in records]
    return [(body["account"], body["step"]) for body in bodies]
