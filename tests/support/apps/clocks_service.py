"""A service in which everything goes by time: timers, waits, deadlines, times of activity, long steps, retries."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta

from milepost import (
    Context,
    Event,
    Milepost,
    Repeat,
    Retry,
    Saga,
    Settings,
    Then,
)
from pydantic import AwareDatetime, BaseModel

from tests.support.apps.ledger_world import World

PREFIX = os.environ.get("LEDGER_PREFIX", "clocks")
#: What the waits here last.
SHORT = timedelta(seconds=4)
#: What the long steps last, more than twice the lease.
LONG = timedelta(seconds=8)


class Dated(BaseModel):
    """Input; `due` is when it is time."""

    name: str
    due: AwareDatetime


class Beat(BaseModel):
    """Progress of a long step."""

    done: int


class Came(Event, type="clocks.came", topic=f"{PREFIX}-came", key="name", correlate="name"):
    name: str


Ctx = Context[Dated]
MANY = Retry(attempts=50, first=timedelta(milliseconds=50), cap=timedelta(milliseconds=200), within=None)

AGAIN = Retry(attempts=500, first=timedelta(milliseconds=200), cap=timedelta(milliseconds=400), within=None)


def _saga(
    name: str, *, deadline: Callable[[Dated], AwareDatetime] | None = None, active: timedelta | None = None
) -> Saga[Dated]:
    return Saga(
        name, version=1, input=Dated, key=lambda given: given.name, deadline=deadline, active_timeout=active
    )


async def _act(ctx: Ctx, what: str) -> None:
    await ctx.use(World).act(ctx.input.name, ctx.idempotency_key, what, dedupe=False)


def _step(saga: Saga[Dated], name: str, repeat: Repeat = Repeat.SAFE) -> None:
    """Add a step that acts once, and its undo."""

    @saga.step(repeat=repeat, name=name, retry=MANY)
    async def act(ctx: Ctx) -> None:
        await _act(ctx, name)

    async def back(ctx: Ctx, done: None) -> None:
        await _act(ctx, f"undo {name}")

    back.__name__ = f"undo_{name}"
    act.undo(back)


def _around(saga: Saga[Dated], *middle: object) -> Saga[Dated]:
    """Act before and after what is in the middle."""
    _step(saga, "before")
    _step(saga, "after")
    before, after = (node for node in saga.nodes if node.name in {"before", "after"})
    saga.flow(before, *middle, after)  # type: ignore[arg-type]
    return saga


lasting = _saga("lasting")
_around(lasting, lasting.timer("pause", SHORT))

instant = _saga("instant")
_around(instant, instant.timer("pause", lambda v: v.input.due))

waiting = _saga("waiting")
_around(
    waiting,
    waiting.wait("came", Came, match=lambda v: v.input.name, timeout=SHORT, on_timeout=Then.COMPENSATE),
)

dated = _saga("dated", deadline=lambda given: given.due)
_around(
    dated,
    dated.wait("came", Came, match=lambda v: v.input.name, timeout=timedelta(days=1), on_timeout=Then.PERSON),
)

#: Tried again and again, until its time is over.
active = _saga("active", active=SHORT)


@active.step(repeat=Repeat.SAFE, retry=AGAIN)
async def in_vain(ctx: Ctx) -> None:
    await ctx.use(World).fault(ctx.input.name, "in vain", "before")
    raise ConnectionRefusedError("nobody is there")


@in_vain.undo
async def undo_in_vain(ctx: Ctx, done: None) -> None:
    await _act(ctx, "undo in vain")


active.flow(in_vain)

asked = _saga("asked")
_around(
    asked,
    asked.approval(
        "ok", roles=frozenset({"finance"}), expires=SHORT, on_expiry=Then.COMPENSATE, on_reject=Then.FAIL
    ),
)


async def _long(ctx: Ctx, *, beating: bool) -> None:
    await _act(ctx, "long")
    for n in range(int(LONG / timedelta(milliseconds=250))):
        await asyncio.sleep(0.25)
        if beating and n % 4 == 0:
            await ctx.heartbeat(Beat(done=n))


#: Neither is ever called twice: who loses its lease would leave it to a person.
long = _saga("long")


@long.step(repeat=Repeat.NEVER, attempt_timeout=timedelta(seconds=60))
async def quiet(ctx: Ctx) -> None:
    await _long(ctx, beating=False)


@long.step(repeat=Repeat.NEVER, attempt_timeout=timedelta(seconds=60))
async def beating(ctx: Ctx) -> None:
    await _long(ctx, beating=True)


long.flow(quiet, beating)

#: Outlasts its attempt.
hanging = _saga("hanging")


@hanging.step(repeat=Repeat.SAFE, attempt_timeout=SHORT, retry=Retry(attempts=1), no_undo="none needed")
async def hangs(ctx: Ctx) -> None:
    await _act(ctx, "hangs")
    await asyncio.Event().wait()


hanging.flow(hangs)

#: Its worker dies once; another one takes over when the lease has ended.
dying = _saga("dying")


@dying.step(repeat=Repeat.SAFE, retry=MANY)
async def dies(ctx: Ctx) -> None:
    await ctx.use(World).fault(ctx.input.name, "dies", "before")
    await _act(ctx, "dies")


dying.flow(dies)

SAGAS = [lasting, instant, waiting, dated, active, asked, long, hanging, dying]


def made() -> Milepost:
    """Return the service."""
    service = Milepost(PREFIX, sagas=SAGAS, settings=Settings.from_env())
    service.provide(World, World.connect)
    return service


service = made()
