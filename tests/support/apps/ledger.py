"""A service whose outside world is a ledger in the same database: one row per call and one per effect.

A step dies where table `fault` says so: the process kills itself with SIGKILL between two lines.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeAlias

import asyncpg
from milepost import (
    Absent,
    Context,
    Event,
    Found,
    Probe,
    Refused,
    Repeat,
    Retry,
    Saga,
    Then,
    Transaction,
)
from pydantic import BaseModel
from sqlalchemy import text

TABLES = """
CREATE TABLE IF NOT EXISTS call (id bigserial PRIMARY KEY, key text NOT NULL, what text NOT NULL, pid integer NOT NULL);
CREATE TABLE IF NOT EXISTS effect (id bigserial PRIMARY KEY, key text NOT NULL, what text NOT NULL);
CREATE TABLE IF NOT EXISTS fault (run text NOT NULL, what text NOT NULL, point text NOT NULL, act text NOT NULL,
    remaining integer NOT NULL, PRIMARY KEY (run, what, point));
"""


class Job(BaseModel):
    """Input of every saga here; `name` is the key."""

    name: str
    fail_at: str = ""


class Done(BaseModel):
    """Result of a call."""

    number: int


class Delivered(
    Event, type="ledger.delivered", version=1, topic="ledger-deliveries", key="name", correlate="name"
):
    """What the waits here wait for."""

    name: str


Ctx: TypeAlias = Context[Job]
FAST = Retry(attempts=4, first=timedelta(milliseconds=50), cap=timedelta(milliseconds=200))


class World:
    """The outside world: a provider with a ledger.

    Args:
        connection: Of its own, so that nothing here shares a transaction with Milepost.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:  # type: ignore[type-arg]
        self.pool = pool

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[World]:
        """Open it."""
        pool = await asyncpg.create_pool(os.environ["MILEPOST_DATABASE_URL"], min_size=1, max_size=4)
        try:
            yield cls(pool)
        finally:
            pool.terminate()

    async def act(self, key: str, what: str, *, dedupe: bool) -> int:
        """Do something and return its number; with `dedupe` the second call with one key returns the first's."""
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "INSERT INTO call (key, what, pid) VALUES ($1, $2, $3)", key, what, os.getpid()
            )
            if dedupe:
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", key)
                known = await connection.fetchval("SELECT id FROM effect WHERE key = $1", key)
                if known is not None:
                    return int(known)
            query = "INSERT INTO effect (key, what) VALUES ($1, $2) RETURNING id"
            return int(await connection.fetchval(query, key, what))

    async def find(self, key: str) -> int | None:
        """Return the number of the effect under a key."""
        found: int | None = await self.pool.fetchval("SELECT id FROM effect WHERE key = $1", key)
        return found

    async def fault(self, run: str, what: str, point: str) -> None:
        """Do what table fault says for this point: kill or freeze the process, hang, or refuse."""
        query = (
            "UPDATE fault SET remaining = remaining - 1 "
            "WHERE run = $1 AND what = $2 AND point = $3 AND remaining > 0 RETURNING act"
        )
        act = await self.pool.fetchval(query, run, what, point)
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif act == "hang":
            await asyncio.Event().wait()
        elif act == "refuse":
            raise Refused("TOLD_TO")
        elif act == "raise":
            raise RuntimeError("told to")


async def _step(ctx: Ctx, what: str, *, dedupe: bool) -> Done:
    # The world is asked for anew before the call: ctx.use looks at the lease.
    await ctx.use(World).fault(ctx.input.name, what, "before")
    number = await ctx.use(World).act(ctx.idempotency_key, what, dedupe=dedupe)
    await ctx.use(World).fault(ctx.input.name, what, "after")
    return Done(number=number)


safe = Saga("safe", version=1, input=Job, key=lambda job: job.name)


@safe.step(repeat=Repeat.SAFE, retry=FAST)
async def safe_act(ctx: Ctx) -> Done:
    return await _step(ctx, "act", dedupe=True)


@safe.step(repeat=Repeat.SAFE, retry=FAST)
async def safe_next(ctx: Ctx) -> Done:
    return await _step(ctx, "next", dedupe=True)


safe.flow(safe_act, safe_next)

ask = Saga("ask", version=1, input=Job, key=lambda job: job.name)


@ask.step(repeat=Repeat.ASK_FIRST, retry=FAST)
async def ask_act(ctx: Ctx) -> Done:
    return await _step(ctx, "act", dedupe=False)


@ask_act.probe(settle=timedelta(seconds=1))
async def ask_find(ctx: Ctx) -> Probe[Done]:
    number = await ctx.use(World).find(ctx.idempotency_key)
    return Absent() if number is None else Found(Done(number=number))


@ask.step(repeat=Repeat.SAFE, retry=FAST)
async def ask_next(ctx: Ctx) -> Done:
    return await _step(ctx, "next", dedupe=True)


ask.flow(ask_act, ask_next)

never = Saga("never", version=1, input=Job, key=lambda job: job.name)


@never.step(repeat=Repeat.NEVER)
async def never_act(ctx: Ctx) -> Done:
    return await _step(ctx, "act", dedupe=False)


@never.step(repeat=Repeat.SAFE, retry=FAST)
async def never_next(ctx: Ctx) -> Done:
    return await _step(ctx, "next", dedupe=True)


never.flow(never_act, never_next)

booked = Saga("booked", version=1, input=Job, key=lambda job: job.name)


@booked.tx_step(retry=FAST)
async def booked_act(ctx: Ctx, tx: Transaction) -> None:
    world = ctx.use(World)
    await world.fault(ctx.input.name, "act", "before")
    insert = text("INSERT INTO effect (key, what) VALUES (:key, 'act')")
    await tx.session.execute(insert, {"key": ctx.idempotency_key})
    await world.fault(ctx.input.name, "act", "after")


@booked.step(repeat=Repeat.SAFE, retry=FAST)
async def booked_next(ctx: Ctx) -> Done:
    return await _step(ctx, "next", dedupe=True)


booked.flow(booked_act, booked_next)

parcel = Saga("parcel", version=1, input=Job, key=lambda job: job.name)


@parcel.step(repeat=Repeat.SAFE, retry=FAST)
async def pay(ctx: Ctx) -> Done:
    return await _step(ctx, "pay", dedupe=True)


@pay.undo
async def repay(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "repay", dedupe=True)


@parcel.step(repeat=Repeat.SAFE, retry=FAST)
async def send(ctx: Ctx) -> Done:
    return await _step(ctx, "send", dedupe=True)


@send.undo
async def call_back(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "call back", dedupe=True)


arrived = parcel.wait(
    "arrived",
    Delivered,
    match=lambda v: v.input.name,
    timeout=timedelta(seconds=4),
    on_timeout=Then.COMPENSATE,
)


@parcel.tx_step(on_failure=Then.PERSON)
async def close(ctx: Ctx, tx: Transaction) -> None:
    await tx.session.execute(
        text("INSERT INTO effect (key, what) VALUES (:key, 'close')"), {"key": ctx.idempotency_key}
    )


parcel.flow(pay, send, arrived, close)
SAGAS = [safe, ask, never, booked, parcel]
