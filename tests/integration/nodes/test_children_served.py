"""Children through real Kafka and `milepost serve`, with a process that is killed in the middle."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest_asyncio
from milepost import Milepost, RunRef

from tests.support import servers
from tests.support.apps import children_service as app
from tests.support.engine import settings_for
from tests.support.process import served
from tests.support.waiting import until


@dataclass
class Place:
    """A database with the ledger."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process of the service."""
        return {
            "MILEPOST_APP": "tests.support.apps.children_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_NUDGE": "1s",
            "CHILDREN_PREFIX": self.prefix,
        }

    @property
    def service(self) -> Milepost:
        """The service, to start runs with."""
        return Milepost(self.prefix, sagas=[app.batch, app.item], settings=settings_for(self.url))

    async def start(self, name: str, *, fails: bool = False) -> RunRef:
        """Start a parent."""
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, app.batch, app.Batch(name=name, fails=fails))

    async def are_in(self, runs: list[RunRef], state: str) -> None:
        """Wait until all runs are in a state."""
        ids = [run.id for run in runs]
        query = "SELECT count(*) FROM milepost.run WHERE id = ANY ($1) AND state = $2"

        async def there() -> bool:
            return bool(await self.pool.fetchval(query, ids, state) == len(ids))

        await until(there, within=90, what=f"{len(ids)} runs to be {state}")

    async def ledger(self) -> Counter[tuple[str, str]]:
        """Return what was done."""
        return Counter(
            (row["act"], row["key"]) for row in await self.pool.fetch("SELECT act, key FROM ledger")
        )


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(app.LEDGER)
        yield Place(database_url, kafka_server.bootstrap, f"c{secrets.token_hex(5)}", pool)


async def test_two_children_end_at_once_and_the_parent_goes_on_once(place: Place) -> None:
    async with served(place.env):
        runs = [await place.start(f"b-{n}") for n in range(10)]
        bad = await place.start("bad", fails=True)
        await place.are_in(runs, "SUCCEEDED")
        await place.are_in([bad], "FAILED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    assert sum(act == "close" for act, _ in done) == 10
    assert sum(act == "do" for act, _ in done) == 21
    kept = await place.pool.fetch(
        "SELECT state, count(*) FROM milepost.child_run GROUP BY state ORDER BY state"
    )
    assert [tuple(row) for row in kept] == [("FAILED", 1), ("SUCCEEDED", 21)]


async def test_a_process_that_is_killed_in_the_middle_loses_no_child_and_makes_none_twice(
    place: Place,
) -> None:
    runs = [await place.start(f"k-{n}") for n in range(30)]
    async with served(place.env) as (process,):

        async def some() -> bool:
            return bool(await place.pool.fetchval("SELECT count(*) FROM ledger WHERE act = 'do'") >= 5)

        await until(some, within=60, what="some children to be done")
        await process.kill()
    async with served(place.env):
        await place.are_in(runs, "SUCCEEDED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    assert len(done) == 90
    assert await place.pool.fetchval("SELECT count(*) FROM milepost.run WHERE saga = 'item'") == 60


async def test_an_end_that_nobody_was_told_of_is_found(place: Place) -> None:
    async with served(place.env):
        run = await place.start("lost")
        # As older code leaves it: it ends children without telling.
        query = (
            "UPDATE milepost.run SET watched = false, version = version + 1 WHERE saga = 'item' AND watched"
        )

        async def unwatched() -> bool:
            return str(await place.pool.execute(query)) != "UPDATE 0"

        await until(unwatched, within=30, what="a child")
        await place.are_in([run], "SUCCEEDED")
