"""A service with a long step that beats, holds where the test wants, and ends early when it is told to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from milepost import Context, Milepost, Repeat, Saga, Settings
from pydantic import BaseModel

from tests.support.apps.limits_service import EFFECTS, World

__all__ = ["EFFECTS", "PREFIX", "Copied", "Copy", "Cursor", "copy", "copying", "made", "service"]

PREFIX = os.environ.get("PULSE_PREFIX", "pulse")


class Copy(BaseModel):
    """Input.

    Attributes:
        items: How many there are.
        hold: After so many the first try waits until there is an effect "go" of the run, or it is told to stop.
    """

    name: str
    items: int
    hold: int


class Cursor(BaseModel):
    """How far a try has come."""

    done: int


class Copied(BaseModel):
    items: int


copying = Saga("copying", version=1, input=Copy, key=lambda given: given.name)


@copying.step(repeat=Repeat.SAFE, attempt_timeout=timedelta(minutes=2))
async def copy(ctx: Context[Copy]) -> Copied:
    given, world = ctx.input, ctx.use(World)
    before = ctx.progress(Cursor)
    first = 0 if before is None else before.done
    await world.act(given.name, f"try {ctx.attempt} from {first}")
    for n in range(first, given.items):
        if ctx.should_stop():
            await world.act(given.name, "stopped")
            return Copied(items=n)
        await world.act(given.name, f"item {n}")
        await ctx.heartbeat(Cursor(done=n + 1))
        if ctx.attempt == 1 and n + 1 == given.hold:
            await world.act(given.name, "holds")
            while not ctx.should_stop() and not await world.told(given.name):
                await asyncio.sleep(0.05)
    return Copied(items=given.items)


@copy.undo
async def remove(ctx: Context[Copy], done: Copied) -> None:
    await ctx.heartbeat()
    await ctx.use(World).act(ctx.input.name, f"removed {done.items}, told to stop: {ctx.should_stop()}")


copying.flow(copy)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Open the world of this process."""
    yield World(str(Settings.from_env().database_url))


def made() -> Milepost:
    """Return the service."""
    service = Milepost(PREFIX, sagas=[copying])
    service.provide(World, world)
    return service


service = made()
