"""Sagas whose outside world is a ledger in the same database: one row per call and one per effect.

The environment names what must differ between tests: LEDGER_PREFIX is the service's name and the beginning of its
topics and groups, LEDGER_WAIT and LEDGER_SETTLE are seconds.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TypeAlias

from milepost import Absent, Context, Event, Found, Probe, Repeat, Retry, Saga, Then, Transaction
from pydantic import BaseModel
from sqlalchemy import text

from tests.support.apps.ledger_world import World

PREFIX = os.environ.get("LEDGER_PREFIX", "ledger")
WAIT = timedelta(seconds=float(os.environ.get("LEDGER_WAIT", "4")))
SETTLE = timedelta(seconds=float(os.environ.get("LEDGER_SETTLE", "1")))


class Job(BaseModel):
    """Input of every saga here; `name` is the key."""

    name: str


class Done(BaseModel):
    """Result of a call."""

    number: int


class Delivered(
    Event, type="ledger.delivered", version=1, topic=f"{PREFIX}-deliveries", key="name", correlate="name"
):
    """What the waits here wait for."""

    name: str


Ctx: TypeAlias = Context[Job]
FAST = Retry(attempts=4, first=timedelta(milliseconds=50), cap=timedelta(milliseconds=200))
TWICE = Retry(attempts=2, first=timedelta(milliseconds=50))
PATIENT = Retry(attempts=500, first=timedelta(milliseconds=200), cap=timedelta(seconds=1))


async def _step(ctx: Ctx, what: str, *, dedupe: bool) -> Done:
    # The world is asked for anew before the call: ctx.use looks at the lease.
    name = ctx.input.name
    await ctx.use(World).fault(name, what, "before")
    number = await ctx.use(World).act(name, ctx.idempotency_key, what, dedupe=dedupe)
    await ctx.use(World).fault(name, what, "after")
    return Done(number=number)


async def take_step(ctx: Ctx, what: str) -> Done:
    """Do something that the other side dedupes."""
    return await _step(ctx, what, dedupe=True)


async def book_effect(ctx: Ctx, tx: Transaction, what: str) -> None:
    """Do something in the transaction of the step."""
    world = ctx.use(World)
    await world.fault(ctx.input.name, what, "before")
    insert = text("INSERT INTO effect (key, what) VALUES (:key, :what)")
    await tx.session.execute(insert, {"key": ctx.idempotency_key, "what": what})
    await world.fault(ctx.input.name, what, "after")


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


@ask_act.probe(settle=SETTLE)
async def ask_find(ctx: Ctx) -> Probe[Done]:
    world = ctx.use(World)
    await world.fault(ctx.input.name, "find", "before")
    number = await world.find(ctx.idempotency_key)
    await world.fault(ctx.input.name, "find", "after")
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
    await book_effect(ctx, tx, "act")


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


@parcel.step(repeat=Repeat.SAFE, retry=PATIENT)
async def send(ctx: Ctx) -> Done:
    return await _step(ctx, "send", dedupe=True)


@send.undo
async def call_back(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "call back", dedupe=True)


arrived = parcel.wait(
    "arrived", Delivered, match=lambda v: v.input.name, timeout=WAIT, on_timeout=Then.COMPENSATE
)


@parcel.tx_step(on_failure=Then.PERSON)
async def close(ctx: Ctx, tx: Transaction) -> None:
    await book_effect(ctx, tx, "close")


parcel.flow(pay, send, arrived, close)

WORDS = ("one", "two", "three", "four", "five")
chain = Saga("chain", version=1, input=Job, key=lambda job: job.name)


def _link(word: str) -> None:
    @chain.step(repeat=Repeat.SAFE, name=word, retry=TWICE, attempt_timeout=timedelta(seconds=5))
    async def act(ctx: Ctx) -> Done:
        return await _step(ctx, word, dedupe=True)

    async def undo(ctx: Ctx, done: Done) -> None:
        await _step(ctx, f"undo {word}", dedupe=True)

    undo.__name__ = f"undo_{word}"
    act.undo(undo)


for _word in WORDS:
    _link(_word)
chain.flow(*chain.nodes)

blind = Saga("blind", version=1, input=Job, key=lambda job: job.name)


@blind.step(repeat=Repeat.SAFE, retry=TWICE)
async def first(ctx: Ctx) -> Done:
    return await _step(ctx, "first", dedupe=True)


@first.undo
async def undo_first(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "undo first", dedupe=True)


@blind.step(repeat=Repeat.SAFE, retry=TWICE)
async def second(ctx: Ctx) -> Done:
    return await _step(ctx, "second", dedupe=True)


@second.undo(blind=True)
async def undo_second(ctx: Ctx, done: Done | None) -> None:
    await _step(ctx, f"undo second of {'nobody knows' if done is None else 'a result'}", dedupe=True)


@blind.step(repeat=Repeat.SAFE, retry=TWICE)
async def third(ctx: Ctx) -> Done:
    return await _step(ctx, "third", dedupe=True)


@third.undo
async def undo_third(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "undo third", dedupe=True)


blind.flow(first, second, third)

last_item = Saga(
    "last_item", version=1, input=Job, key=lambda job: job.name, lock=lambda job: job.name.partition("-")[0]
)


@last_item.step(repeat=Repeat.SAFE, retry=TWICE)
async def take(ctx: Ctx) -> Done:
    return await _step(ctx, "take", dedupe=True)


@take.undo
async def put_back(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "put back", dedupe=True)


@last_item.step(repeat=Repeat.SAFE, retry=TWICE)
async def sell(ctx: Ctx) -> Done:
    return await _step(ctx, "sell", dedupe=True)


@sell.undo
async def take_back(ctx: Ctx, done: Done) -> None:
    await _step(ctx, "take back", dedupe=True)


@last_item.tx_step(retry=TWICE)
async def record(ctx: Ctx, tx: Transaction) -> None:
    await book_effect(ctx, tx, "record")


last_item.flow(take, sell, record)

SAGAS = [safe, ask, never, booked, parcel, chain, blind]
