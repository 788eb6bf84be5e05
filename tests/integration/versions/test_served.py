"""Versions of one saga in real processes: side by side, killed, rolled back, and refused where nobody has them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest_asyncio
from milepost import Milepost, RunRef
from milepost.sagas.saga import Saga

from tests.support import servers
from tests.support.apps.limits_service import EFFECTS
from tests.support.apps.versions_service import Parcel, Weighed, first, second
from tests.support.console import items
from tests.support.engine import settings_for
from tests.support.process import Served, served
from tests.support.waiting import until


@dataclass
class Place:
    """A database with its ledger, and processes of the service on it."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]
    v1: Saga[Parcel] = field(default_factory=first)
    v2: Saga[Weighed] = field(default_factory=second)

    def __post_init__(self) -> None:
        self.service = Milepost(self.prefix, sagas=[self.v1, self.v2], settings=settings_for(self.url))

    def env(self, versions: str, **more: str) -> dict[str, str]:
        """Return the environment of a process with these versions."""
        return {
            "MILEPOST_APP": "tests.support.apps.versions_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_NUDGE": "1s",
            "MILEPOST_PARK_AFTER": "4s",
            "VERSIONS_PREFIX": self.prefix,
            "VERSIONS": versions,
            **more,
        }

    async def old(self, name: str, *, held: bool = False) -> RunRef:
        """Start a run of version 1."""
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, self.v1, Parcel(name=name, held=held))

    async def new(self, name: str, *, held: bool = False) -> RunRef:
        """Start a run of version 2."""
        async with self.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, self.v2, Weighed(name=name, grams=7, held=held))

    async def refused(self, versions: str) -> str:
        """Start a process that must not start, and return what it said."""
        process = Served(self.env(versions))
        await process.start(ready=0)
        assert await process.wait() == 1, process.tail()
        return "\n".join(process.log)

    async def call(self, *names: str) -> None:
        """Deliver what the runs wait for."""
        await self.pool.executemany(
            "SELECT milepost.publish(topic => $1, type => 'versions.called', payload => "
            "jsonb_build_object('name', $2::text), key => $2)",
            [(f"{self.prefix}-calls", name) for name in names],
        )

    async def effects(self, name: str) -> list[str]:
        """Return the effects of a run, in order."""
        rows = await self.pool.fetch("SELECT what FROM effect WHERE run = $1 ORDER BY id", name)
        return [row["what"] for row in rows]

    async def go(self, name: str) -> None:
        """Let a held call come back."""
        await self.pool.execute("INSERT INTO effect (run, what) VALUES ($1, 'go')", name)

    async def told(self, run: RunRef) -> list[str]:
        """Return the history of a run."""
        rows = await self.pool.fetch(
            "SELECT event FROM milepost.history WHERE run_id = $1 ORDER BY n", run.id
        )
        return [row["event"] for row in rows]

    async def are_in(self, state: str, *runs: RunRef, within: float = 60) -> None:
        """Wait until runs are in a state."""
        query = "SELECT count(*) FROM milepost.run WHERE id = ANY($1) AND state = $2"

        async def there() -> bool:
            return bool(await self.pool.fetchval(query, [run.id for run in runs], state) == len(runs))

        await until(there, within=within, what=f"{[run.key for run in runs]} to be {state}")

    async def parked(self, *runs: RunRef) -> None:
        """Wait until runs are parked."""
        query = "SELECT count(DISTINCT run_id) FROM milepost.handover WHERE run_id = ANY($1) AND parked_at IS NOT NULL"

        async def there() -> bool:
            return bool(await self.pool.fetchval(query, [run.id for run in runs]) == len(runs))

        await until(there, within=60, what=f"{[run.key for run in runs]} to be parked")


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(EFFECTS)
        yield Place(database_url, kafka_server.bootstrap, f"t{secrets.token_hex(5)}", pool)


V1 = ["v1 book begins", "v1 book", "v1 label", "v1 send"]
V2 = ["v2 book begins", "v2 book", "v2 weigh 7", "v2 send"]


async def test_both_versions_at_once_each_run_on_its_own_code(place: Place) -> None:
    """Which process a message reaches is Kafka's choice; every run gets on all the same, also after a kill."""
    async with served(place.env("1")) as (one,), served(place.env("2")) as (two,):
        olds = [await place.old(f"old{n}") for n in range(6)]
        news = [await place.new(f"new{n}") for n in range(6)]
        await place.are_in("WAITING", *olds, *news)
        await place.call(*(run.key for run in (*olds[:3], *news[:3])))
        await place.are_in("SUCCEEDED", *olds[:3], *news[:3])
        await one.kill()
        await two.kill()
        await until(lambda: _nobody(place), within=30, what="their leases ended")
        await place.refused(
            "1"
        )  # nobody has version 2; from now on it is known that this one is being started
        async with served(place.env("2")), served(place.env("1")):
            async with place.pool.acquire() as connection, connection.transaction():
                for run in (olds[5], news[5]):
                    await place.service.cancel(connection, run, undo=True, by="ann", reason="no more wanted")
            await place.are_in("COMPENSATED", olds[5], news[5])
            await place.call(*(run.key for run in (*olds[3:5], *news[3:5])))
            await place.are_in("SUCCEEDED", *olds[:5], *news[:5])
    for run in olds[:5]:
        assert await place.effects(run.key) == V1, run
    for run in news[:5]:
        assert await place.effects(run.key) == V2, run
    assert await place.effects("old5") == [*V1[:3], "v1 unbook"], "undone by the code that did it"
    assert await place.effects("new5") == [*V2[:2], "v2 unbook"]
    assert await place.pool.fetchval("SELECT count(*) FROM milepost.handover") == 0


async def test_rolled_back_runs_wait_are_shown_to_a_person_and_go_on_by_themselves(place: Place) -> None:
    async with served(place.env("1")):
        async with served(place.env("1,2")) as (new,):
            held, waits = await place.new("held", held=True), await place.new("waits")
            await place.are_in("WAITING", waits)
            await until(lambda: _begun(place), within=30, what="book under way")
            await new.kill()
        await place.go("held")
        await place.call("waits")
        mine = await place.old("mine")
        await place.are_in("WAITING", mine)
        await place.parked(held, waits)
        assert (await place.told(held)).count("run.parked") == 1
        states = await place.pool.fetch("SELECT state FROM milepost.run WHERE saga = 'parcel' ORDER BY key")
        assert [row["state"] for row in states] == ["RUNNING", "WAITING", "WAITING"], "nothing was decided"
        rows = await _worklist(place)
        assert {(row["run"], row["kind"], row["code"]) for row in rows} == {
            ("parcel/held", "version", "DEFINITION_MISSING"),
            ("parcel/waits", "version", "DEFINITION_MISSING"),
        }
        assert all(row["possible"] == ["resume"] for row in rows)
        async with served(place.env("2")):
            await place.are_in("WAITING", held)
            await place.are_in("SUCCEEDED", waits)
            await place.call("held", "mine")
            await place.are_in("SUCCEEDED", held, mine)
    assert await place.effects("waits") == V2
    assert await place.effects("mine") == V1
    assert (await place.told(held)).count("run.unparked") >= 1
    assert await place.pool.fetchval("SELECT count(*) FROM milepost.handover") == 0


async def _nobody(place: Place) -> bool:
    return bool(await place.pool.fetchval("SELECT bool_and(expires_at < now()) FROM milepost.worker"))


async def _begun(place: Place) -> bool:
    return "v2 book begins" in await place.effects("held")


async def _worklist(place: Place) -> list[dict[str, Any]]:
    return [row for row in await items(place.url, "worklist") if row["kind"] != "trouble"]


async def test_a_person_has_a_parked_run_looked_for_again(place: Place) -> None:
    run = await place.new("lost")
    async with served(place.env("1", MILEPOST_ROLLED_BACK="parcel/2")):
        await place.parked(run)
        (answer,) = await items(place.url, "runs", "resume", "parcel/lost", "--reason", "v2 comes")
        assert answer["outcome"] == "accepted"
        await place.parked(run)
    told = await place.told(run)
    assert [event for event in told if "parked" in event] == ["run.parked", "run.unparked", "run.parked"]
    audit = await place.pool.fetch("SELECT actor, act FROM milepost.audit")
    assert [tuple(row) for row in audit] == [("ann", "run.resume")]


async def test_nobody_starts_without_what_open_runs_need(place: Place) -> None:
    await place.new("n1")
    await place.new("n2")
    words = await place.refused("1")
    assert "parcel v2 is in no live process and not in this one while 2 runs of v2 are open." in words
    assert "First open run: parcel/n1." in words and "MILEPOST_ROLLED_BACK=parcel/2" in words
    async with served(place.env("2")), served(place.env("1")):
        await place.are_in("WAITING", await place.old("o1"))
    words = await place.refused("1-edited,2")
    assert (
        "parcel v1 changed shape (removed: label) while 1 run of v1 is open. Keep v1 as it was and add version=3 "
        "beside it; those runs finish on v1. First open run: parcel/o1." in words
    )
