"""A service whose runs have a deadline in their input; its outside world is one table of effects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from milepost import Context, Event, Milepost, Repeat, Saga, Settings, Then
from pydantic import AwareDatetime, BaseModel

PREFIX = os.environ.get("LIMITS_PREFIX", "limits")
EFFECTS = "CREATE TABLE effect (id bigserial PRIMARY KEY, run text NOT NULL, what text NOT NULL)"


class Dated(BaseModel):
    """Input.

    Attributes:
        held: The call of `slow` comes back when there is an effect "go" of the run.
    """

    name: str
    due: AwareDatetime
    held: bool = False


class Called(Event, type="limits.called", topic=f"{PREFIX}-calls", key="name", correlate="name"):
    name: str


class World:
    """Writes effects."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def act(self, run: str, what: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("INSERT INTO effect (run, what) VALUES ($1, $2)", run, what)
        finally:
            await connection.close()

    async def told(self, run: str) -> bool:
        """Whether the test has said go."""
        connection = await asyncpg.connect(self._url)
        try:
            query = "SELECT count(*) FROM effect WHERE run = $1 AND what = 'go'"
            return bool(await connection.fetchval(query, run))
        finally:
            await connection.close()


dated = Saga("dated", version=1, input=Dated, key=lambda given: given.name, deadline=lambda given: given.due)


@dated.step(repeat=Repeat.SAFE)
async def act(ctx: Context[Dated]) -> None:
    await ctx.use(World).act(ctx.input.name, "act")


@act.undo
async def unact(ctx: Context[Dated], done: None) -> None:
    await ctx.use(World).act(ctx.input.name, "unact")


@dated.step(repeat=Repeat.SAFE)
async def slow(ctx: Context[Dated]) -> None:
    await ctx.use(World).act(ctx.input.name, "slow begins")
    while ctx.input.held and not await ctx.use(World).told(ctx.input.name):
        await asyncio.sleep(0.05)
    await ctx.use(World).act(ctx.input.name, "slow")


@slow.undo
async def unslow(ctx: Context[Dated], done: None) -> None:
    await ctx.use(World).act(ctx.input.name, "unslow")


called = dated.wait(
    "called", Called, match=lambda view: view.input.name, timeout=timedelta(days=1), on_timeout=Then.PERSON
)
dated.flow(act, slow, called)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Open the world of this process."""
    yield World(str(Settings.from_env().database_url))


def made() -> Milepost:
    """Return the service."""
    service = Milepost(PREFIX, sagas=[dated])
    service.provide(World, world)
    return service


service = made()
