"""A database with its ledger and processes of the service in apps/queues_service.py."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
from milepost import Milepost, RunRef, Saga

from tests.support.apps import queues_service
from tests.support.engine import settings_for
from tests.support.outbox import arrived
from tests.support.process import ROOT, Served
from tests.support.waiting import until


@dataclass
class Shop:
    """What tests of queues do and see."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]

    def __post_init__(self) -> None:
        sagas = queues_service.service.sagas
        self.service = Milepost(self.prefix, sagas=sagas, settings=settings_for(self.url))

    def env(self, **more: object) -> dict[str, str]:
        """Return the environment of a process."""
        own = {
            "MILEPOST_APP": "tests.support.apps.queues_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_LEASE": "3s",
            "QUEUES_PREFIX": self.prefix,
        }
        return own | {name: str(value) for name, value in more.items()}

    def process(self, *, roles: str = "", queues: str = "", **more: object) -> Served:
        """Return a process that is not started yet."""
        return Served(self.env(**more), roles, queues=queues)

    async def start(self, saga: Saga[Any], name: str, **more: Any) -> RunRef:
        """Start a run."""
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, saga, queues_service.Job(name=name, **more))

    async def go(self, *names: str) -> None:
        """Let held runs go on."""
        await self.pool.executemany("INSERT INTO go VALUES ($1)", [(name,) for name in names])

    async def effects(self, like: str = "%") -> list[tuple[str, str]]:
        """Return effects of runs, in order."""
        rows = await self.pool.fetch("SELECT run, what FROM effect WHERE run LIKE $1 ORDER BY id", like)
        return [(row["run"], row["what"]) for row in rows]

    async def has(self, run: str, what: str, within: float = 30.0) -> None:
        """Wait for an effect."""

        async def there() -> bool:
            return (run, what) in await self.effects(run)

        await until(there, within=within, what=f"{run} {what}")

    async def begun(self, like: str, many: int) -> None:
        """Wait until so many runs have an effect."""

        async def there() -> bool:
            return len({run for run, _ in await self.effects(like)}) >= many

        await until(there, within=60, what=f"{many} of {like} to begin")

    async def turns_true(self, query: str) -> None:
        """Wait until a query says true."""
        await until(lambda: self.pool.fetchval(query), within=30, what=query)

    async def sent(self, topic: str) -> None:
        """Wait until something is in a topic."""

        async def there() -> bool:
            return any((await arrived(self.kafka, topic)).records.values())

        await until(there, within=30, what=f"a record in {topic}")

    async def rate_held(self) -> None:
        """Assert that the bank was never called more often than allowed, but for what a call takes to arrive."""
        rows = await self.pool.fetch("SELECT at FROM effect WHERE what = 'pay' ORDER BY at")
        times = [row["at"] for row in rows]
        for first, after in zip(times, times[queues_service.CALLS :], strict=False):
            assert after - first >= queues_service.PER - timedelta(seconds=0.5), times

    async def stands(self, run: RunRef, state: str) -> str:
        """Wait until a run is in a state; returns the message of its youngest row that has one."""

        async def there() -> bool:
            return bool(
                await self.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run.id) == state
            )

        await until(there, within=60, what=f"{run} {state}")
        query = "SELECT message FROM milepost.step WHERE run_id = $1 AND code = 'BUDGET_EXCEEDED'"
        return str(await self.pool.fetchval(query, run.id))

    async def spent(self, run: RunRef, step: str) -> dict[str, str]:
        """Return what the tries of a step have spent, without the time."""
        found = await self.pool.fetchval(
            "SELECT (spent - 'runtime')::text FROM milepost.step WHERE run_id = $1 AND name = $2",
            run.id,
            step,
        )
        amounts: dict[str, str] = json.loads(found)
        return amounts

    async def milepost(self, *words: str) -> tuple[int, str]:
        """Run a command line as a person does, without the application."""
        env = {name: value for name, value in {**os.environ, **self.env()}.items() if name != "MILEPOST_APP"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "milepost.console.main", "--as", "ann", *words),
            env=env,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def ran_in(self, like: str, *processes: Served) -> None:
        """Assert in which processes effects of runs took place."""
        rows = await self.pool.fetch("SELECT DISTINCT process FROM effect WHERE run LIKE $1", like)
        assert {row["process"] for row in rows} == {process.pid for process in processes}

    async def all_are(self, state: str, within: float = 60.0) -> None:
        """Wait until all runs are in a state."""

        async def there() -> bool:
            return not await self.pool.fetchval("SELECT count(*) FROM milepost.run WHERE state <> $1", state)

        await until(there, within=within, what=f"all runs {state}")


@asynccontextmanager
async def shop(url: str, kafka: str) -> AsyncIterator[Shop]:
    """Open it; processes are started and stopped by the test."""
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        await pool.execute(queues_service.EFFECTS)
        yield Shop(url, kafka, f"t{secrets.token_hex(5)}", pool)


@asynccontextmanager
async def running(*processes: Served) -> AsyncIterator[None]:
    """Start processes; none is left afterwards."""
    try:
        for process in processes:
            await process.start(ready=0)
        for process in processes:
            await until(lambda p=process: p.ready or p.ended, within=60, what=f"ready {process.roles}")  # type: ignore[misc]
            assert process.ready, process.tail()
        yield
    except AssertionError as error:
        for process in processes:
            error.add_note(f"serve {process.roles} {process.queues}:\n{process.tail()}")
        raise
    finally:
        for process in processes:
            if not process.ended:
                await process.kill()
