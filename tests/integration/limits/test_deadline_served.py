"""Deadlines on the real clock of the database, with `milepost serve` as a user runs it; the ledger is the witness."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from milepost import Milepost, RunRef, UsageError
from milepost.sagas.saga import Saga

from tests.support import servers
from tests.support.apps.limits_service import EFFECTS, Dated, dated
from tests.support.engine import settings_for
from tests.support.process import served
from tests.support.waiting import until

LATER = (
    "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
    " AS $$ SELECT clock_timestamp() + interval '2 hours' $$"
)


@dataclass
class Place:
    """A database with its ledger, and what starts processes of the service on it."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]

    def __post_init__(self) -> None:
        self.service = Milepost(self.prefix, sagas=[dated], settings=settings_for(self.url))

    def env(self) -> dict[str, str]:
        """Return the environment of a process."""
        return {
            "MILEPOST_APP": "tests.support.apps.limits_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_NUDGE": "1s",
            "LIMITS_PREFIX": self.prefix,
        }

    async def start(self, name: str, due_in: float, *, held: bool = False) -> RunRef:
        """Start a run that is due so many seconds from now."""
        async with self.pool.acquire() as connection, connection.transaction():
            now: datetime = await connection.fetchval("SELECT milepost.clock()")
            given = Dated(name=name, due=now + timedelta(seconds=due_in), held=held)
            return await self.service.start(connection, dated, given)

    async def effects(self, name: str) -> list[str]:
        """Return the effects of a run, in order."""
        rows = await self.pool.fetch("SELECT what FROM effect WHERE run = $1 ORDER BY id", name)
        return [row["what"] for row in rows]

    async def row(self, run: RunRef) -> asyncpg.Record:
        """Return a run's row, and whether it ended no earlier than its deadline."""
        query = "SELECT *, finished_at >= deadline_at AS in_order FROM milepost.run WHERE id = $1"
        found: asyncpg.Record | None = await self.pool.fetchrow(query, run.id)
        assert found is not None
        return found

    async def is_in(self, run: RunRef, state: str) -> None:
        """Wait until a run is in a state."""

        async def there() -> bool:
            return bool((await self.row(run))["state"] == state)

        await until(there, within=60, what=f"{run} to be {state}")

    async def expired(self, run: RunRef, *effects: str) -> None:
        """Wait until a run has expired, and compare the ledger."""
        await self.is_in(run, "EXPIRED")
        row = await self.row(run)
        assert (row["cause"], row["code"], row["in_order"]) == ("DEADLINE", "DEADLINE", True)
        assert await self.effects(run.key) == list(effects)
        query = "SELECT event FROM milepost.history WHERE run_id = $1 AND event = ANY($2) ORDER BY n"
        told = await self.pool.fetch(query, run.id, ["run.compensating", "run.expired"])
        assert [entry["event"] for entry in told] == ["run.compensating", "run.expired"], "once"


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(EFFECTS)
        yield Place(database_url, kafka_server.bootstrap, f"t{secrets.token_hex(5)}", pool)


async def test_runs_expire_on_the_real_clock_and_after_a_time_without_processes(place: Place) -> None:
    async with served(place.env()):
        waits, late = await place.start("waits", 8), await place.start("late", 8, held=True)
        away = await place.start("away", 3600)
        await place.is_in(waits, "WAITING")
        await place.is_in(away, "WAITING")
        await place.is_in(late, "COMPENSATING")
        query = "SELECT state FROM milepost.step WHERE run_id = $1 AND name = 'slow'"
        assert await place.pool.fetchval(query, late.id) == "RUNNING", "what is under way may finish"
        await place.pool.execute("INSERT INTO effect (run, what) VALUES ('late', 'go')")
        await place.expired(late, "act", "slow begins", "go", "slow", "unslow", "unact")
        await place.expired(waits, "act", "slow begins", "slow", "unslow", "unact")
    assert (await place.row(away))["state"] == "WAITING"
    await place.pool.execute(LATER)
    async with served(place.env()):
        await place.expired(away, "act", "slow begins", "slow", "unslow", "unact")


async def test_a_deadline_that_is_no_instant_starts_nothing(place: Place) -> None:
    naive: Saga[Dated] = Saga(
        "naive",
        version=1,
        input=Dated,
        key=lambda given: given.name,
        deadline=lambda given: given.due.replace(tzinfo=None),
    )
    naive.flow(naive.step(repeat=dated.definition.nodes[0].repeat)(_nothing))
    service = Milepost(place.prefix, sagas=[naive], settings=settings_for(place.url))
    async with place.pool.acquire() as connection, connection.transaction():
        now = await connection.fetchval("SELECT milepost.clock()")
        with pytest.raises(UsageError, match=r"MP339 naive v1: deadline= returned .* has no time zone"):
            await service.start(connection, naive, Dated(name="n", due=now))
    for table in ("run", "run_key", "outbox"):
        assert await place.pool.fetchval(f"SELECT count(*) FROM milepost.{table}") == 0


async def _nothing(ctx: Any) -> None:
    """Do nothing."""
