"""The service of `apps/letters_service.py` with its database and topic, its processes, and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from milepost.streams.database import Database
from milepost.streams.topics import ensure_topics

from tests.support.apps.letters_service import SETUP
from tests.support.inbox import Effects, opened, paid, send
from tests.support.process import ROOT
from tests.support.waiting import until


@dataclass
class World:
    """A service's database, topic and processes."""

    kafka: str
    prefix: str
    url: str
    database: Database
    env: dict[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return f"{self.prefix}.events"

    @property
    def effects(self) -> Effects:
        return Effects(self.database.pool)

    async def broken(self, *orders: str) -> None:
        """Break these orders and mend all others."""
        await self.database.pool.execute("DELETE FROM broken")
        for order in orders:
            await self.database.pool.execute("INSERT INTO broken VALUES ($1)", order)

    async def send(self, *orders: str, key: bytes | None = None) -> None:
        events = [paid(order) for order in orders]
        for event, order in zip(events, orders, strict=True):
            event.key = key or order.encode()
        await send(self.kafka, self.topic, events)

    async def letters(self, count: int) -> None:
        """Wait until so many letters are there and none is asked for."""

        async def there() -> bool:
            sql = "SELECT count(*) = $1 AND NOT coalesce(bool_or(status = 'RETRY_PENDING'), false)"
            return bool(await self.effects.value(f"{sql} FROM milepost.dead_letter", count))

        await until(there, within=60, what=f"{count} letters")

    async def applied(self, *orders: str) -> None:
        async def same() -> bool:
            return await self.effects.orders() == list(orders)

        await until(same, within=60, what=f"the effects {orders}")

    async def milepost(self, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        """Run a command line as a person does, without the application."""
        env = {name: value for name, value in {**os.environ, **self.env}.items() if name != "MILEPOST_APP"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "milepost.console.main", "--json", "--as", "ann", *words),
            env=env,
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


@asynccontextmanager
async def opened_world(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[World]:
    """Make the topics and the tables."""
    async with opened(database_url) as database:
        for statement in SETUP:
            await database.pool.execute(statement)
        world = World(kafka, topic_prefix, database_url, database)
        await ensure_topics(kafka, [world.topic, f"{topic_prefix}.dead"], partitions=1)
        world.env = {
            "MILEPOST_DATABASE_URL": database_url,
            "MILEPOST_KAFKA": kafka,
            "MILEPOST_APP": "tests.support.apps.letters_service:service",
            "LETTERS_PREFIX": topic_prefix,
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT)])),
        }
        yield world
