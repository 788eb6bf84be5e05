"""Rows of any age for tests of retention, and what there is afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from milepost.consumers.ageing import Ageing
from milepost.consumers.retention import Retention
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

IDS = SystemIds()
NO_PAUSE = timedelta(0)
RUN = (
    "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at, finished_at,"
    " correlation_id, created_at) SELECT $1::uuid, 's', 'order', $1::uuid::text, 1, '', '', '{}', $2::text,"
    " CASE WHEN $4::interval IS NULL THEN now() END, clock_timestamp() - $4, '', clock_timestamp() - $3::interval"
)
TOLD = (
    "INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since) SELECT $1::uuid, 'pay', 1, 'STEP',"
    " CASE WHEN $2::boolean THEN 'WAITING' ELSE 'SUCCEEDED' END, CASE WHEN $2 THEN now() END, now()",
    "INSERT INTO milepost.wait (run_id, step, generation, type, key, state)"
    " SELECT $1::uuid, 'pay', 1, 't', 'k', CASE WHEN $2::boolean THEN 'OPEN' ELSE 'CLOSED' END",
    "INSERT INTO milepost.fanout (run_id, step, attempt, input_version, total)"
    " SELECT $1::uuid, 'send', 1, 1, CASE WHEN $2::boolean THEN 2 ELSE 1 END",
    "INSERT INTO milepost.fanout_item (run_id, step, number, key, input)"
    " SELECT $1::uuid, 'send', n, 'k', '{}' FROM generate_series(0, CASE WHEN $2::boolean THEN 1 ELSE 0 END) AS n",
    "INSERT INTO milepost.run_key (saga, key, run_id, input_hash, outcome)"
    " SELECT 'order', $1::uuid::text, $1::uuid, '\\x00', CASE WHEN $2::boolean THEN NULL ELSE 'SUCCEEDED' END",
)


def settings(url: str, **more: Any) -> Settings:
    given: dict[str, Any] = {"database_url": url, **more}
    return Settings(**given)


def retention(url: str, *, every: timedelta = NO_PAUSE, **more: Any) -> Retention:
    return Retention(Database(settings(url, **more)), every=every)


def ageing(url: str, *, every: timedelta = NO_PAUSE, **more: Any) -> Ageing:
    return Ageing(Database(settings(url, **more)), every=every)


def stop() -> Stop:
    return Stop(SystemClock(), timedelta(seconds=5))


def days(n: float) -> timedelta:
    return timedelta(days=n)


async def run_of(
    connection: asyncpg.Connection[Any], *, began: float, ended: float | None, state: str = "SUCCEEDED"
) -> UUID:
    """Insert a run with a step, a wait and its key; ages are in days, `ended` None for one that is live."""
    run = IDS.new()
    live = ended is None
    await connection.execute(
        RUN, run, "WAITING" if live else state, days(began), None if ended is None else days(ended)
    )
    for statement in TOLD:
        await connection.execute(statement, run, live)
    return run


async def month(connection: asyncpg.Connection[Any], parent: str, age: float) -> str:
    """Attach the partition that holds the instant so many days ago, if it is not there; returns its name."""
    row = await connection.fetchrow(
        "SELECT * FROM milepost.partition_of($1, clock_timestamp() - $2::interval)", parent, days(age)
    )
    assert row is not None
    name, low, high = row
    if not await there(connection, name):
        await connection.execute(f"CREATE TABLE milepost.{name} (LIKE milepost.{parent} INCLUDING ALL)")
        await connection.execute(
            f"ALTER TABLE milepost.{parent} ATTACH PARTITION milepost.{name} FOR VALUES FROM ('{low}') TO ('{high}')"
        )
    return str(name)


async def told(connection: asyncpg.Connection[Any], run: UUID, age: float) -> tuple[str, str]:
    """Write a row of history and one of audit of so many days ago; returns the names of their partitions."""
    names = await month(connection, "history", age), await month(connection, "audit", age)
    await connection.execute(
        "INSERT INTO milepost.history (run_id, n, at, event) VALUES ($1, 1, clock_timestamp() - $2::interval, 'x.y')",
        run,
        days(age),
    )
    await connection.execute(
        "INSERT INTO milepost.audit (id, at, actor, act, run_id, reason)"
        " VALUES (gen_random_uuid(), clock_timestamp() - $2::interval, 'ann', 'x', $1, 'y')",
        run,
        days(age),
    )
    return names


async def there(connection: asyncpg.Connection[Any], name: str) -> bool:
    """Whether there is a table of that name."""
    return bool(await connection.fetchval("SELECT to_regclass('milepost.' || $1) IS NOT NULL", name))


async def attached(connection: asyncpg.Connection[Any], name: str) -> bool:
    """Whether it is a partition."""
    return bool(
        await connection.fetchval(
            "SELECT relispartition FROM pg_class WHERE oid = to_regclass('milepost.' || $1)", name
        )
    )


async def runs_in(connection: asyncpg.Connection[Any], table: str) -> set[UUID]:
    """Return the runs of which a table has rows."""
    column = "id" if table == "run" else "run_id"
    return {
        row["run"] for row in await connection.fetch(f"SELECT DISTINCT {column} AS run FROM milepost.{table}")
    }
