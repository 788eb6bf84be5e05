"""The engine of a service on a real database, driven by hand: no broker, each message delivered by the test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from milepost import Milepost, RunRef, Saga, Settings
from milepost.consumers.engine import Engine, changes_of
from milepost.consumers.orchestrator import Orchestrator
from milepost.consumers.waker import Waker
from milepost.schemas.ids import SystemIds
from milepost.streams.database import Database
from pydantic import BaseModel, PostgresDsn


def settings_for(url: str, **more: Any) -> Settings:
    """Settings of a test on a database."""
    return Settings(database_url=PostgresDsn(url), **more)


@dataclass
class Rig:
    """One service with an engine on a database."""

    service: Milepost
    database: Database
    engine: Engine
    orchestrator: Orchestrator
    waker: Waker

    async def start(self, saga: Saga[Any], value: BaseModel) -> RunRef:
        """Start a run in a transaction of its own."""
        async with self.database.pool.acquire() as connection, connection.transaction():
            return await self.service.start(connection, saga, value)

    async def row(self, query: str, *arguments: Any) -> asyncpg.Record:
        """Return one row."""
        found: asyncpg.Record | None = await self.database.pool.fetchrow(query, *arguments)
        assert found is not None, query
        return found

    async def value(self, query: str, *arguments: Any) -> Any:
        """Return one value."""
        return await self.database.pool.fetchval(query, *arguments)

    async def states(self, run: UUID) -> dict[str, str]:
        """Return the states of a run (under '') and of its steps."""
        rows = await self.database.pool.fetch("SELECT name, state FROM milepost.step WHERE run_id = $1", run)
        own = await self.value("SELECT state FROM milepost.run WHERE id = $1", run)
        return {"": own} | {row["name"]: row["state"] for row in rows}

    async def history(self, run: UUID) -> list[str]:
        """Return the events of a run's history, in order."""
        query = "SELECT event FROM milepost.history WHERE run_id = $1 ORDER BY n"
        return [row["event"] for row in await self.database.pool.fetch(query, run)]

    async def outgoing(self, type: str) -> list[dict[str, Any]]:
        """Return the bodies of outbox rows of a type, in order."""
        query = "SELECT payload FROM milepost.outbox WHERE type = $1 ORDER BY seq"
        return [json.loads(row["payload"]) for row in await self.database.pool.fetch(query, type)]

    async def clock(self, sql_interval: str) -> None:
        """Move milepost.clock() by an interval from the real time."""
        await self.database.pool.execute(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
            f"$$ SELECT clock_timestamp() + interval '{sql_interval}' $$"
        )


def worker_id() -> UUID:
    """A worker that has no lease row: a dead one."""
    return SystemIds().new()


@asynccontextmanager
async def rig(
    url: str, *sagas: Saga[Any], name: str = "rig", max_size: int = 10, **more: Any
) -> AsyncIterator[Rig]:
    """Open a service on a database."""
    settings = settings_for(url, **more)
    service = Milepost(name, sagas=sagas, settings=settings)
    database = Database(settings, max_size=max_size)
    await database.open()
    engine = Engine(changes_of(service), database.pool)
    waker = Waker(engine, push=settings.nudge, sweep_every=settings.lease / 3)
    try:
        yield Rig(service, database, engine, Orchestrator(engine), waker)
    finally:
        await database.close()
