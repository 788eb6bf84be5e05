"""Fan-out through real Kafka and `milepost serve`, with processes that are killed in the middle and messages lost."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from milepost import Milepost, RunRef
from milepost.recovery.requests import Request, ask
from milepost.streams.drivers import run_in

from tests.support import servers
from tests.support.apps import fan_out_service as app
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
            "MILEPOST_APP": "tests.support.apps.fan_out_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_NUDGE": "1s",
            "FAN_OUT_PREFIX": self.prefix,
        }

    @property
    def service(self) -> Milepost:
        """The service, to start runs with."""
        return Milepost(self.prefix, sagas=[app.batch, app.item], settings=settings_for(self.url))

    async def start(self, name: str, items: int, **more: Any) -> RunRef:
        """Start a run with so many items."""
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, app.batch, app.Batch(name=name, items=items, **more))

    async def is_in(self, run: RunRef, state: str) -> None:
        """Wait until the run is in a state."""

        async def there() -> bool:
            return bool(
                await self.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run.id) == state
            )

        await until(there, within=120, what=f"{run} to be {state}")

    async def done(self, amount: int) -> None:
        """Wait until so many items have been done."""

        async def some() -> bool:
            return bool(await self.pool.fetchval("SELECT count(*) FROM ledger WHERE act = 'do'") >= amount)

        await until(some, within=90, what=f"{amount} items to be done")

    async def ledger(self) -> Counter[tuple[str, str]]:
        """Return what was done; never were more under way than may be."""
        rows = await self.pool.fetch("SELECT act, key, started FROM ledger")
        assert all(row["started"] is None or row["started"] <= app.CONCURRENCY for row in rows)
        return Counter((row["act"], row["key"]) for row in rows)

    async def states(self) -> dict[str, int]:
        """Return how many items are in each state."""
        rows = await self.pool.fetch("SELECT state, count(*) FROM milepost.fanout_item GROUP BY state")
        return {row["state"]: row["count"] for row in rows}

    async def numbers_are_right(self, run: RunRef) -> None:
        """Hold the numbers that were counted on the way against the items themselves."""
        row = await self.pool.fetchrow("SELECT * FROM milepost.fanout WHERE run_id = $1", run.id)
        assert row is not None
        states = await self.states()
        assert (row["started"], row["next"]) == (0, row["total"])
        assert (row["succeeded"], row["failed"]) == (states.get("SUCCEEDED", 0), states.get("FAILED", 0))


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(app.LEDGER)
        yield Place(database_url, kafka_server.bootstrap, f"f{secrets.token_hex(5)}", pool)


async def test_two_processes_never_begin_too_many_and_the_parent_goes_on_once(place: Place) -> None:
    async with served(place.env, "", ""):
        run = await place.start("two", 300, bad=20)
        await place.is_in(run, "PARTIALLY_SUCCEEDED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    assert sum(act == "do" for act, _ in done) == 280
    assert sum(act == "close" for act, _ in done) == 1
    assert await place.states() == {"SUCCEEDED": 280, "FAILED": 20}
    await place.numbers_are_right(run)
    version = await place.pool.fetchval("SELECT version FROM milepost.run WHERE id = $1", run.id)
    assert version < 20, "a few looks beside start, list, end and the step after it; none for each item"


@asynccontextmanager
async def held(place: Place, query: str, *arguments: Any) -> AsyncIterator[bool]:
    """Hold what a statement locks until the block ends; yields whether it locked anything."""
    connection = await asyncpg.connect(place.url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield bool(await connection.fetch(query, *arguments))
    finally:
        await connection.close()


async def stands_at(place: Place, statement: str) -> None:
    """Wait until a process stands in front of a lock in the middle of a statement."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND query LIKE $1"
    )

    async def there() -> bool:
        return bool(await place.pool.fetchval(query, f"{statement}%"))

    await until(there, within=60, what=f"a process in {statement}")


#: An item in the middle of the list, as if somebody else stored it; the next to be given out; and one under way.
STORED = (
    "INSERT INTO milepost.fanout_item (run_id, step, number, key, input) VALUES ($1, 'spread', 3000, '', '{}')"
    " RETURNING true"
)
NEXT = "SELECT FROM milepost.fanout_item WHERE run_id = $1 AND number = 140 AND state = 'PENDING' FOR UPDATE"
UNDER_WAY = (
    "SELECT FROM milepost.fanout_item WHERE run_id = $1 AND state = 'STARTED' LIMIT 1 FOR UPDATE SKIP LOCKED"
)


async def test_a_process_that_is_killed_while_it_stores_the_list_leaves_no_part_of_it(place: Place) -> None:
    run = await place.start("stored", 5_000)
    async with held(place, STORED, run.id) as locked, served(place.env) as (process,):
        assert locked
        await stands_at(place, "INSERT INTO milepost.fanout_item")
        await process.kill()
    assert await place.states() == {}
    async with served(place.env):
        await place.done(1)
        assert sum((await place.states()).values()) == 5_000
        async with place.pool.acquire() as connection, connection.transaction():
            await place.service.cancel(connection, run, undo=False, by="ann", reason="seen enough")
        await place.is_in(run, "CANCELLED")
    assert set((await place.ledger()).values()) <= {1}
    states = await place.states()
    assert states["SUCCEEDED"] + states["CANCELLED"] == 5_000


@pytest.mark.parametrize(
    ("lock", "statement"), [(NEXT, "UPDATE milepost.fanout_item"), (UNDER_WAY, "WITH ended AS")]
)
async def test_a_process_that_is_killed_while_it_begins_or_counts_items_does_all_or_nothing(
    place: Place, lock: str, statement: str
) -> None:
    run = await place.start("fed", 150)
    async with served(place.env) as (process,):
        await place.done(5)
        while True:
            async with held(place, lock, run.id) as locked:
                if locked:
                    await stands_at(place, statement)
                    await process.kill()
                    break
    begun = await place.pool.fetchval("SELECT count(*) FROM milepost.run WHERE saga = 'item'")
    states = await place.states()
    assert begun == sum(states.values()) - states["PENDING"], (
        "each item that has begun has its run, and no other"
    )
    async with served(place.env):
        await place.is_in(run, "SUCCEEDED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    assert len(done) == 151
    await place.numbers_are_right(run)


async def test_processes_that_are_killed_again_and_again_begin_each_item_once(place: Place) -> None:
    run = await place.start("killed", 400, slowly=True)
    for amount in (20, 120, 250):
        async with served(place.env) as (process,):
            await place.done(amount)
            await process.kill()
    async with served(place.env):
        await place.is_in(run, "SUCCEEDED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    assert len(done) == 401
    assert await place.pool.fetchval("SELECT count(*) FROM milepost.run WHERE saga = 'item'") == 400
    await place.numbers_are_right(run)


async def test_ends_that_nobody_was_told_of_are_found(place: Place) -> None:
    query = "UPDATE milepost.run SET watched = false, version = version + 1 WHERE saga = 'item' AND watched"
    async with served(place.env):
        run = await place.start("lost", 200)
        # As older code leaves it: it ends children without telling.
        lost = 0

        async def unwatched() -> bool:
            nonlocal lost
            lost += int((await place.pool.execute(query)).split()[1])
            return lost >= app.CONCURRENCY

        await until(unwatched, within=30, every=0.01, what="items under way")
        await place.is_in(run, "SUCCEEDED")
    assert len(await place.ledger()) == 201
    await place.numbers_are_right(run)


async def test_only_what_has_failed_is_begun_again(place: Place) -> None:
    async with served(place.env):
        run = await place.start("again", 100, bad=30)
        await place.is_in(run, "MANUAL_REQUIRED")
        assert await place.states() == {"SUCCEEDED": 70, "FAILED": 30}
        await place.pool.execute("INSERT INTO mended VALUES (true)")
        async with place.pool.acquire() as connection, connection.transaction():
            wanted = Request(run=run.id, what="retry", by="ann", reason="mended", step="spread")
            await ask(await run_in(connection, "test"), wanted, place.service.ids, "test")
        await place.is_in(run, "SUCCEEDED")
    done = await place.ledger()
    assert set(done.values()) == {1}
    again = {key for act, key in done if act == "do" and key.endswith("~2")}
    assert again == {f"again-{n}~2" for n in range(30)}
    await place.numbers_are_right(run)
