"""A service with work of every priority, in two queues; its outside world is one table of effects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal

import asyncpg
import httpx
from milepost import Budget, Context, Milepost, Priority, Repeat, Retry, Saga, Settings
from pydantic import BaseModel

PREFIX = os.environ.get("QUEUES_PREFIX", "queues")
#: What the bank allows.
CALLS, PER = 5, timedelta(seconds=3)
HOUR = timedelta(hours=1)
EFFECTS = """
CREATE TABLE effect (
    id bigserial PRIMARY KEY,
    run text NOT NULL,
    what text NOT NULL,
    process integer NOT NULL DEFAULT 0,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE go (run text PRIMARY KEY);
"""


class Job(BaseModel):
    """Input.

    Attributes:
        held: Calls come back when there is a row of the run in the table "go".
    """

    name: str
    priority: Priority = Priority.NORMAL
    held: bool = False


class World:
    """Writes effects, and says whether the test has said go."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def act(self, run: str, what: str) -> None:
        query = "INSERT INTO effect (run, what, process) VALUES ($1, $2, $3)"
        await self._pool.execute(query, run, what, os.getpid())

    async def told(self, run: str) -> bool:
        return bool(await self._pool.fetchval("SELECT count(*) FROM go WHERE run = $1", run))

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> AsyncIterator[World]:
        """Open the world of this process."""
        url = str(Settings.from_env().database_url)
        async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
            yield cls(pool)


async def work(ctx: Context[Job], what: str) -> None:
    """Begin, wait for the test where the input says so, end."""
    world = ctx.use(World)
    await world.act(ctx.input.name, what)
    while ctx.input.held and not await world.told(ctx.input.name):
        await asyncio.sleep(0.05)
    await world.act(ctx.input.name, f"{what} done")


job = Saga("job", version=1, input=Job, key=lambda j: j.name, priority=lambda j: j.priority)


@job.step(repeat=Repeat.SAFE)
async def first(ctx: Context[Job]) -> None:
    await work(ctx, "first")


@job.step(repeat=Repeat.SAFE)
async def second(ctx: Context[Job]) -> None:
    await work(ctx, "second")


job.flow(first, second)

report = Saga("report", version=1, input=Job, key=lambda j: j.name, queue="long")


@report.step(repeat=Repeat.SAFE, retry=Retry(attempts=3))
async def crunch(ctx: Context[Job]) -> None:
    await work(ctx, "crunch")


report.flow(crunch)

payment = Saga("payment", version=1, input=Job, key=lambda j: j.name, priority=lambda j: j.priority)


@payment.step(repeat=Repeat.SAFE, limits="bank")
async def pay(ctx: Context[Job]) -> None:
    await ctx.use(World).act(ctx.input.name, "pay")
    if ctx.input.held and ctx.attempt == 1:
        # As httpx says it of an answer: the bank asks to be left alone.
        request = httpx.Request("POST", "http://bank/payments")
        httpx.Response(429, headers={"Retry-After": "4"}, request=request).raise_for_status()


payment.flow(pay)

agent = Saga("agent", version=1, input=Job, key=lambda j: j.name, budget=Budget(tokens=1000, runtime=HOUR))


@agent.step(repeat=Repeat.SAFE)
async def think(ctx: Context[Job]) -> None:
    world = ctx.use(World)
    await world.act(ctx.input.name, f"think with {ctx.budget.tokens}")
    for part in range(4):
        ctx.spend(tokens=300, cost=Decimal("0.10"), tool_calls=1)
        await ctx.heartbeat()
        await world.act(ctx.input.name, "spent")
        while ctx.input.held and ctx.attempt == 1 and part == 1:
            await asyncio.sleep(0.05)


@agent.step(repeat=Repeat.SAFE)
async def write(ctx: Context[Job]) -> None:
    await ctx.use(World).act(ctx.input.name, "write")


agent.flow(think, write)

slow = Saga("slow", version=1, input=Job, key=lambda j: j.name)


@slow.step(repeat=Repeat.SAFE, budget=Budget(runtime=timedelta(seconds=1)))
async def dawdle(ctx: Context[Job]) -> None:
    await ctx.use(World).act(ctx.input.name, "dawdle")
    await asyncio.sleep(20)


slow.flow(dawdle)

service = Milepost(PREFIX, sagas=[job, report, payment, agent, slow])
service.limit("bank", calls=CALLS, per=PER)
service.provide(World, World.opened)
