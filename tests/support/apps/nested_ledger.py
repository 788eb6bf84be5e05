"""Drawn flows whose leaves act on the ledger: steps, transactional steps, commands, waits and timers, and their undos.

What a leaf does is written under its operation key, `{run}:{step}[#round]`, so that the ledger can be compared with the
model afterwards. Each saga is drawn from a seed of its own.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any

from milepost import (
    Absent,
    Command,
    Consumer,
    Event,
    Failed,
    Found,
    Probe,
    QualityFailed,
    Refused,
    Repeat,
    Retry,
    Saga,
    Then,
    Transaction,
)
from pydantic import BaseModel
from sqlalchemy import text

from tests.support.apps.ledger import PREFIX, SETTLE, Ctx, Job
from tests.support.apps.ledger_world import World
from tests.support.nested_drawn import Leaf, Seq, drawn_by, flow_of, leaves

#: Seeds of the flows; each has at least three leaves.
SEEDS = range(100 if os.environ.get("MILEPOST_CHAOS") == "long" else 20)
NEVER_COMES, WILL_COME = timedelta(seconds=2), timedelta(minutes=30)
INSERT = text("INSERT INTO effect (key, what) VALUES (:key, :what)")


class Made(BaseModel):
    """Result of a step; `id` is the round."""

    id: str


class Came(Event, type="nested.came", topic=f"{PREFIX}-came", key="name", correlate="name"):
    """What waits wait for; `name` is the run's key and the wait."""

    name: str


class Booked(Event, type="nested.booked", topic=f"{PREFIX}-booked", key="id"):
    id: str


class Cancelled(Event, type="nested.cancelled", topic=f"{PREFIX}-booked", key="id"):
    id: str


class Book(Command[Booked], type="nested.book", topic=f"{PREFIX}-bookings", key="id"):
    id: str
    refuse: bool = False


class Cancel(Command[Cancelled], type="nested.cancel", topic=f"{PREFIX}-bookings", key="id"):
    id: str


def _retry(attempts: int) -> Retry:
    return Retry(
        attempts=attempts, first=timedelta(milliseconds=50), cap=timedelta(milliseconds=500), within=None
    )


PATIENT = _retry(1000)


def _round(key: str) -> str:
    """Return the round that an operation key names."""
    return key.removesuffix(":undo").partition("#")[2]


def _declare(saga: Saga[Job], leaf: Leaf) -> Any:
    if leaf.kind == "timer":
        return saga.timer(leaf.name, timedelta(milliseconds=200))
    if leaf.kind == "wait":
        return _wait(saga, leaf)
    if leaf.kind == "tx":
        return _booked(saga, leaf)
    return _command(saga, leaf) if leaf.kind == "command" else _step(saga, leaf)


def _step(saga: Saga[Job], leaf: Leaf) -> Any:
    dedupe = leaf.repeat is Repeat.SAFE

    @saga.step(
        repeat=leaf.repeat,
        name=leaf.name,
        retry=_retry(leaf.attempts),
        on_failure=leaf.then,
        no_undo="none needed" if leaf.undo == "none" else None,
        attempt_timeout=timedelta(seconds=10),
    )
    async def act(ctx: Ctx) -> Made:
        name, number = ctx.input.name, _round(ctx.idempotency_key)
        if leaf.fate == "no":
            raise Refused("NO")
        if leaf.fate == "poor" and number.rpartition(".")[2] == "1":
            raise QualityFailed("POOR")
        await ctx.use(World).fault(name, leaf.name, "before")
        await ctx.use(World).act(name, ctx.idempotency_key, leaf.name, dedupe=dedupe)
        await ctx.use(World).fault(name, leaf.name, "after")
        return Made(id=number or "x")

    async def undo(ctx: Ctx, done: Made | None) -> None:
        await ctx.use(World).act(ctx.input.name, ctx.idempotency_key, "undo", dedupe=True)

    async def find(ctx: Ctx) -> Probe[Made]:
        found = await ctx.use(World).find(ctx.idempotency_key)
        return Absent() if found is None else Found(Made(id=_round(ctx.idempotency_key) or "x"))

    _undone(act, leaf, undo)
    if leaf.repeat is Repeat.ASK_FIRST:
        act.probe(settle=SETTLE, give_up=timedelta(days=1))(find)
    return act


def _undone(node: Any, leaf: Leaf, undo: Any) -> None:
    undo.__name__ = f"undo_{leaf.name}"
    if leaf.undo == "blind":
        node.undo(blind=True, retry=PATIENT)(undo)
    elif leaf.undo == "plain":
        node.undo(retry=PATIENT)(undo)


def _booked(saga: Saga[Job], leaf: Leaf) -> Any:
    @saga.tx_step(name=leaf.name, retry=_retry(leaf.attempts), on_failure=leaf.then, no_undo="none needed")
    async def book(ctx: Ctx, tx: Transaction) -> None:
        await ctx.use(World).fault(ctx.input.name, leaf.name, "before")
        await tx.session.execute(INSERT, {"key": ctx.idempotency_key, "what": leaf.name})
        if leaf.fate == "no":
            raise Refused("NO")
        await ctx.use(World).fault(ctx.input.name, leaf.name, "after")

    return book


def _wait(saga: Saga[Job], leaf: Leaf) -> Any:
    wait = saga.wait(
        leaf.name,
        Came,
        match=lambda v: f"{v.input.name}/{leaf.name}",
        timeout=WILL_COME if leaf.fate == "ok" else NEVER_COMES,
        on_timeout=leaf.then,
    )

    async def ask(ctx: Ctx) -> Probe[Came]:
        return Found(Came(name="x")) if leaf.fate == "ok" else Failed("NEVER")

    if leaf.then is Then.RECONCILE:
        wait.probe(ask)
    return wait


def _command(saga: Saga[Job], leaf: Leaf) -> Any:
    """Declare a command; ASK_FIRST ones are SAFE: what is under way may be so for longer than a test can settle."""
    node = saga.command(
        leaf.name,
        lambda v: Book(id=f"{v.input.name}/{leaf.name}", refuse=leaf.fate != "ok"),
        reply=Booked,
        timeout=timedelta(seconds=3),
        repeat=Repeat.NEVER if leaf.repeat is Repeat.NEVER else Repeat.SAFE,
        retry=_retry(leaf.attempts),
        on_failure=leaf.then,
        no_undo="none needed" if leaf.undo == "none" else None,
    )

    async def undo(ctx: Ctx, done: Booked | None) -> None:
        ctx.emit(Cancel(id=f"{ctx.input.name}/{leaf.name}"))

    _undone(node, leaf, undo)
    return node


async def book(command: Book, tx: Transaction) -> Booked:
    """Do what a command asks for."""
    await tx.session.execute(INSERT, {"key": _operation(tx), "what": "booked"})
    if command.refuse:
        raise Refused("NO")
    return Booked(id=command.id)


async def cancel(command: Cancel, tx: Transaction) -> Cancelled:
    """Undo it."""
    await tx.session.execute(INSERT, {"key": f"{_operation(tx)}:undo", "what": "undo"})
    return Cancelled(id=command.id)


def _operation(tx: Transaction) -> str:
    assert tx.envelope is not None and tx.envelope.exchange is not None
    return f"{tx.envelope.exchange.run}:{tx.envelope.exchange.step}"


def participate(consumer: Consumer) -> None:
    """Let a consumer answer the commands."""
    consumer.answers(Book, Booked)(book)
    consumer.answers(Cancel, Cancelled, undoes=Book)(cancel)


def _saga(seed: int, tree: Seq) -> Saga[Job]:
    saga: Saga[Job] = Saga(f"nested_{seed}", version=1, input=Job, key=lambda job: job.name)
    saga.flow(*flow_of(saga, tree, _declare))
    return saga


_DRAWN = {seed: drawn_by(random.Random(seed)) for seed in SEEDS}
#: Flow and saga by the saga's name.
NESTED: dict[str, tuple[Seq, Saga[Job]]] = {
    f"nested_{seed}": (tree, _saga(seed, tree))
    for seed, tree in _DRAWN.items()
    if len(list(leaves(tree))) >= 3
}
