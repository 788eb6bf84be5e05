"""A long step that beats, with `milepost serve` as a user runs it: killed between two heartbeats, and cancelled."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest_asyncio
from milepost import Milepost, RunRef

from tests.support import servers
from tests.support.apps.pulse_service import EFFECTS, Copy, copying
from tests.support.engine import settings_for
from tests.support.process import served
from tests.support.waiting import until

REST = "relay,orchestrator,waker"


@dataclass
class Place:
    """A database with its ledger, and what starts processes of the service on it."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]

    def __post_init__(self) -> None:
        self.service = Milepost(self.prefix, sagas=[copying], settings=settings_for(self.url))

    def env(self, lease: str) -> dict[str, str]:
        """Return the environment of a process."""
        return {
            "MILEPOST_APP": "tests.support.apps.pulse_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_LEASE": lease,
            "MILEPOST_NUDGE": "1s",
            "PULSE_PREFIX": self.prefix,
        }

    async def start(self, name: str, items: int, hold: int) -> RunRef:
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, copying, Copy(name=name, items=items, hold=hold))

    async def effects(self, name: str) -> list[str]:
        """Return the effects of a run, in order."""
        rows = await self.pool.fetch("SELECT what FROM effect WHERE run = $1 ORDER BY id", name)
        return [row["what"] for row in rows]

    async def has(self, name: str, what: str, within: float = 60) -> None:
        """Wait for an effect."""

        async def there() -> bool:
            return what in await self.effects(name)

        await until(there, within=within, what=f"{what} of {name}")

    async def ends(self, run: RunRef, state: str) -> None:
        """Wait until a run is in a state."""

        async def there() -> bool:
            found = await self.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run.id)
            return bool(found == state)

        await until(there, within=60, what=f"{run} to be {state}")


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(EFFECTS)
        yield Place(database_url, kafka_server.bootstrap, f"t{secrets.token_hex(5)}", pool)


async def test_a_try_after_a_kill_goes_on_where_the_last_heartbeat_was(place: Place) -> None:
    async with served(place.env("3s"), REST, "worker") as (_, worker):
        run = await place.start("killed", items=4, hold=2)
        await place.has("killed", "holds")
        await worker.kill()
        async with served(place.env("3s"), "worker"):
            await place.ends(run, "SUCCEEDED")
    assert await place.effects("killed") == [
        *("try 1 from 0", "item 0", "item 1", "holds"),
        *("try 2 from 2", "item 2", "item 3"),
    ]
    row = await place.pool.fetchrow(
        "SELECT attempt, progress::text FROM milepost.step WHERE run_id = $1", run.id
    )
    assert row is not None and tuple(row) == (2, '{"done": 4}')


async def test_a_cancel_reaches_the_step_long_before_the_lease_is_renewed(place: Place) -> None:
    async with served(place.env("60s"), f"{REST},worker,compensator"):
        run = await place.start("cancelled", items=4, hold=2)
        await place.has("cancelled", "holds")
        async with place.pool.acquire() as connection, connection.transaction():
            await place.service.cancel(connection, run, undo=True, by="ann", reason="not wanted")
        await place.has("cancelled", "stopped", within=10)
        await place.ends(run, "COMPENSATED")
    assert await place.effects("cancelled") == [
        *("try 1 from 0", "item 0", "item 1", "holds", "stopped"),
        "removed 2, told to stop: False",
    ]
