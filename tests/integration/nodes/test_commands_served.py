"""Commands of a saga through real Kafka: a participant in a process of its own, killed and begun again."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest_asyncio
from milepost import RunRef

from tests.support import servers
from tests.support.apps import trips_service as app
from tests.support.process import served
from tests.support.waiting import until


@dataclass
class Place:
    """A database with the participant's ledger."""

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]

    def env(self, what: str) -> dict[str, str]:
        """Return the environment of a process of "service" or "trucks"."""
        return {
            "MILEPOST_APP": f"tests.support.apps.trips_service:{what}",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_NUDGE": "1s",
            "TRIPS_PREFIX": self.prefix,
        }

    async def start(self, name: str, *, fails: bool = False) -> RunRef:
        """Start a trip as the service of this prefix would."""
        from milepost import Milepost

        from tests.support.engine import settings_for

        service = Milepost(self.prefix, sagas=[app.trip], settings=settings_for(self.url))
        async with self.pool.acquire() as connection, connection.transaction():
            return await service.start(connection, app.trip, app.Trip(name=name, fails=fails))

    async def is_in(self, run: RunRef, state: str) -> None:
        """Wait until a run is in a state."""

        async def there() -> bool:
            return bool(
                await self.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run.id) == state
            )

        await until(there, within=60, what=f"{run} to be {state}")

    async def ledger(self, name: str) -> Counter[tuple[str, str]]:
        """Return what the participant did for a trip."""
        rows = await self.pool.fetch("SELECT act, truck FROM ledger WHERE truck LIKE $1", f"{name}-%")
        return Counter((row["act"], row["truck"]) for row in rows)


@pytest_asyncio.fixture
async def place(database_url: str, kafka_server: servers.MessageServer) -> AsyncIterator[Place]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(app.LEDGER)
        yield Place(database_url, kafka_server.bootstrap, f"t{secrets.token_hex(5)}", pool)


async def test_commands_are_answered_undone_and_survive_an_absent_participant(place: Place) -> None:
    async with served(place.env("service")):
        async with served(place.env("trucks")):
            good, bad = await place.start("good"), await place.start("bad", fails=True)
            await place.is_in(good, "SUCCEEDED")
            await place.is_in(bad, "COMPENSATED")
        absent = await place.start("absent")
        query = "SELECT min(attempt) FROM milepost.step WHERE run_id = $1 AND kind = 'COMMAND'"

        async def asked_again() -> bool:
            return bool(await place.pool.fetchval(query, absent.id) >= 3)

        await until(asked_again, within=60, what="both commands to be sent three times")
        async with served(place.env("trucks")):
            await place.is_in(absent, "SUCCEEDED")
    assert await place.ledger("good") == {("do", "good-there"): 1, ("do", "good-back"): 1}
    assert await place.ledger("absent") == {("do", "absent-there"): 1, ("do", "absent-back"): 1}
    assert await place.ledger("bad") == {
        (act, f"bad-{way}"): 1 for act in ("do", "undo") for way in ("there", "back")
    }
    plate = await place.pool.fetchval(
        "SELECT result->>'plate' FROM milepost.step WHERE run_id = $1 AND name = 'there'", good.id
    )
    assert plate == "P-good-there"


async def test_a_refusal_undoes_what_was_booked_beside_it(place: Place) -> None:
    async with served(place.env("service")), served(place.env("trucks")):
        run = await place.start("none")
        await place.is_in(run, "FAILED")
    codes = await place.pool.fetch(
        "SELECT code FROM milepost.step WHERE run_id = $1 AND kind = 'COMMAND'", run.id
    )
    assert {row["code"] for row in codes} == {"NO_TRUCK"}
    assert await place.ledger("none") == {}, "a refused command leaves nothing behind"
