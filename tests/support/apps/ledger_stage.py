"""The test's hand in the ledger's service: starts runs, orders faults, delivers events, reads what came of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaProducer
from milepost import Milepost, Saga
from milepost.schemas.states import FINAL_RUN_STATES

from tests.support.apps.ledger import SAGAS, Job, last_item
from tests.support.apps.ledger_approvals import APPROVALS
from tests.support.apps.ledger_world import TABLES
from tests.support.engine import settings_for
from tests.support.waiting import until

#: The sagas of the ledger's own service.
LEDGER: Sequence[Saga[Any]] = (*SAGAS, last_item, *APPROVALS)
#: Name of the test's own connections, which it does not cut off.
STAGE = "stage"
#: States in which nothing more happens unless a person acts.
RESTING = frozenset(state.value for state in FINAL_RUN_STATES) | {"MANUAL_REQUIRED", "COMPENSATION_FAILED"}


@dataclass
class Stage:
    """One test's service: its name, its database, its topics.

    Args:
        url: Database.
        kafka: Bootstrap servers.
        prefix: Name of the service.
        pool: For starting runs and for looking.
        producer: Of another company, which knows CloudEvents and nothing else.
        sagas: What can be started.
        world: Of the outside world, where that has a database of its own.
    """

    url: str
    kafka: str
    prefix: str
    pool: asyncpg.Pool[Any]
    producer: AIOKafkaProducer
    sagas: Sequence[Saga[Any]] = LEDGER
    world: asyncpg.Pool[Any] | None = None

    def __post_init__(self) -> None:
        self.service = Milepost(self.prefix, sagas=self.sagas, settings=settings_for(self.url))

    @property
    def outside(self) -> asyncpg.Pool[Any]:
        """Where faults, calls and effects are."""
        return self.world or self.pool

    def env(self, **more: object) -> dict[str, str]:
        """Return the environment of the service's processes."""
        return {
            "MILEPOST_APP": "tests.support.apps.ledger_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "MILEPOST_GRACE": "10s",
            "MILEPOST_NUDGE": "1s",
            "LEDGER_PREFIX": self.prefix,
            **{name: str(value) for name, value in more.items()},
        }

    async def start(self, saga: Saga[Job], name: str) -> UUID:
        """Start a run."""
        async with self.pool.acquire() as connection, connection.transaction():
            return (await self.service.start(connection, saga, Job(name=name))).id

    async def fault(self, run: str, what: str, point: str, act: str, times: int = 1) -> None:
        """Order a fault at a point of the run with this key."""
        await self.outside.execute(
            "INSERT INTO fault VALUES ($1, $2, $3, $4, $5)", run, what, point, act, times
        )

    async def reached(self, run: str, what: str, point: str, within: float = 60) -> None:
        """Wait until an ordered fault has happened for the last time."""
        query = "SELECT remaining = 0 FROM fault WHERE run = $1 AND what = $2 AND point = $3"
        await until(
            lambda: self.outside.fetchval(query, run, what, point),
            within=within,
            what=f"{run} at {point} of {what}",
        )

    async def release(self, run: str, what: str, point: str) -> None:
        """Let a held call go on, and take an ordered fault back."""
        await self.outside.execute(
            "DELETE FROM fault WHERE run = $1 AND what = $2 AND point = $3", run, what, point
        )

    async def faults_left(self) -> int:
        """Return how many ordered faults have not happened."""
        return int(await self.outside.fetchval("SELECT coalesce(sum(remaining), 0) FROM fault"))

    async def deliver(
        self,
        name: str,
        *,
        id: str = "",
        times: int = 1,
        traceparent: str = "",
        of: str = "ledger.delivered",
        topic: str = "deliveries",
    ) -> str:
        """Publish the delivery of a parcel as the carrier does; repeats are records with the same id.

        Args:
            of: The event's type, for what is delivered otherwise.
            topic: Its topic, without the service's name.
        """
        event = id or str(uuid4())
        headers = {
            "ce_specversion": "1.0",
            "ce_id": event,
            "ce_source": "carrier",
            "ce_type": of,
            "ce_time": datetime.now(UTC).isoformat(),
            "content-type": "application/json",
            **({"traceparent": traceparent} if traceparent else {}),
        }
        for _ in range(times):
            await self.producer.send_and_wait(
                f"{self.prefix}-{topic}",
                key=name.encode(),
                value=json.dumps({"name": name}).encode(),
                headers=[(header, value.encode()) for header, value in headers.items()],
            )
        return event

    async def state(self, run: UUID) -> str:
        """Return a run's state."""
        return str(await self.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run))

    async def step(self, run: UUID, name: str) -> asyncpg.Record:
        """Return a step's row."""
        query = "SELECT * FROM milepost.step WHERE run_id = $1 AND name = $2"
        found: asyncpg.Record | None = await self.pool.fetchrow(query, run, name)
        assert found is not None, f"{name} has no row"
        return found

    async def step_is(self, run: UUID, name: str, *states: str, within: float = 60) -> None:
        """Wait until a step is in one of these states."""
        query = "SELECT state FROM milepost.step WHERE run_id = $1 AND name = $2"

        async def there() -> bool:
            return await self.pool.fetchval(query, run, name) in states

        await until(there, within=within, what=f"{name} to be {' or '.join(states)}")

    async def history(self, run: UUID) -> list[str]:
        """Return the events of a run's history, in order."""
        query = "SELECT event FROM milepost.history WHERE run_id = $1 ORDER BY n"
        return [row["event"] for row in await self.pool.fetch(query, run)]

    async def story(self, run: UUID) -> str:
        """Return a run's history for people."""
        query = "SELECT at, event, step, attempt, data FROM milepost.history WHERE run_id = $1 ORDER BY n"
        return "\n".join(
            f"{row['at']:%M:%S.%f} {row['event']} {row['step'] or ''} {row['attempt'] or ''} {row['data']}"
            for row in await self.pool.fetch(query, run)
        )

    async def left_in_doubt(self, run: UUID) -> set[str]:
        """Return the steps that were given up without anybody knowing whether they happened."""
        query = "SELECT name FROM milepost.step WHERE run_id = $1 AND state = 'FAILED' AND doubt"
        return {row["name"] for row in await self.pool.fetch(query, run)}

    async def effects(self, run: UUID) -> list[str]:
        """Return what happened for a run, in order."""
        return await self._ledger("effect", run)

    async def calls(self, run: UUID, what: str) -> int:
        """Return how often something was asked for."""
        return (await self._ledger("call", run)).count(what)

    async def _ledger(self, table: str, run: UUID) -> list[str]:
        query = f"SELECT what FROM {table} WHERE starts_with(key, $1) ORDER BY id"
        return [row["what"] for row in await self.outside.fetch(query, f"{run}:")]

    async def resting(self, runs: Collection[UUID], within: float) -> Counter[str]:
        """Wait until nothing of these runs moves any more; returns how many ended in which state."""
        query = "SELECT state, count(*) AS n FROM milepost.run WHERE id = ANY($1) GROUP BY state"
        seen: Counter[str] = Counter()

        async def done() -> bool:
            seen.clear()
            seen.update({row["state"]: row["n"] for row in await self.pool.fetch(query, list(runs))})
            return seen.keys() <= RESTING

        try:
            await until(done, within=within, every=0.2, what=f"{len(runs)} runs to end")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self._unfinished(list(runs))}") from None
        return seen

    async def _unfinished(self, runs: list[UUID]) -> str:
        query = (
            "SELECT id, saga, key, state FROM milepost.run WHERE id = ANY($1) AND NOT state = ANY($2) LIMIT 5"
        )
        rows = await self.pool.fetch(query, runs, sorted(RESTING))
        return "\n".join(
            [f"{row['saga']}/{row['key']} {row['state']}\n{await self.story(row['id'])}" for row in rows]
        )


@asynccontextmanager
async def staged(url: str, kafka: str, prefix: str, *sagas: Saga[Any]) -> AsyncIterator[Stage]:
    """Prepare a database for the ledger's service; no process runs yet."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    async with asyncpg.create_pool(
        url, min_size=1, max_size=8, server_settings={"application_name": STAGE}
    ) as pool:
        await pool.execute(TABLES)
        await producer.start()
        try:
            yield Stage(url, kafka, prefix, pool, producer, sagas or LEDGER)
        finally:
            await producer.stop()
