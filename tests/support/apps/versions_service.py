"""A service of which VERSIONS says what versions of its saga it has; its outside world is one table of effects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from milepost import Context, Event, Milepost, Repeat, Saga, Settings, Then
from pydantic import BaseModel

from tests.support.apps.limits_service import World

PREFIX = os.environ.get("VERSIONS_PREFIX", "versions")


class Parcel(BaseModel):
    """Input of version 1.

    Attributes:
        held: The call of `book` comes back when there is an effect "go" of the run.
    """

    name: str
    held: bool = False
    waits: bool = False


class Weighed(BaseModel):
    """Input of version 2."""

    name: str
    grams: int
    held: bool = False
    waits: bool = False


class Called(Event, type="versions.called", topic=f"{PREFIX}-calls", key="name", correlate="name"):
    name: str


async def _act(ctx: Context[Any], what: str) -> None:
    await ctx.use(World).act(ctx.input.name, what)


async def _held(ctx: Context[Any], what: str) -> None:
    await _act(ctx, f"{what} begins")
    while ctx.input.held and not await ctx.use(World).told(ctx.input.name):
        await asyncio.sleep(0.05)
    await _act(ctx, what)


def first(retry_undo: bool = False, *, without_label: bool = False) -> Saga[Parcel]:
    """Return version 1: book, label, a wait, send; without the label it is an edited version 1."""
    saga = Saga("parcel", version=1, input=Parcel, key=lambda given: given.name)

    @saga.step(repeat=Repeat.SAFE)
    async def book(ctx: Context[Parcel]) -> None:
        await _held(ctx, "v1 book")

    @book.undo
    async def unbook(ctx: Context[Parcel], done: None) -> None:
        await _act(ctx, "v1 unbook")

    @saga.step(repeat=Repeat.SAFE, no_undo="paper", name="label")
    async def label(ctx: Context[Parcel]) -> None:
        await _act(ctx, "v1 label")

    called = saga.wait(
        "called", Called, match=lambda v: v.input.name, timeout=timedelta(days=1), on_timeout=Then.PERSON
    )

    @saga.step(repeat=Repeat.SAFE, irreversible=True)
    async def send(ctx: Context[Parcel]) -> None:
        await _act(ctx, "v1 send")

    if without_label:
        saga.nodes.remove(label)
        saga.flow(book, called, send)
    else:
        saga.flow(book, label, called, send)
    return saga


def second(old: Saga[Parcel] | None = None) -> Saga[Weighed]:
    """Return version 2: book, a wait, weigh, send; no label."""
    saga = Saga("parcel", version=2, input=Weighed, key=lambda given: given.name)

    @saga.step(repeat=Repeat.SAFE)
    async def book(ctx: Context[Weighed]) -> None:
        await _held(ctx, "v2 book")

    @book.undo
    async def unbook(ctx: Context[Weighed], done: None) -> None:
        await _act(ctx, "v2 unbook")

    called = saga.wait(
        "called", Called, match=lambda v: v.input.name, timeout=timedelta(days=1), on_timeout=Then.PERSON
    )

    @saga.step(repeat=Repeat.SAFE, no_undo="nothing moves")
    async def weigh(ctx: Context[Weighed]) -> None:
        await _act(ctx, f"v2 weigh {ctx.input.grams}")

    @saga.step(repeat=Repeat.SAFE, irreversible=True)
    async def send(ctx: Context[Weighed]) -> None:
        await _act(ctx, "v2 send")

    saga.flow(book, called, weigh, send)
    if old is not None:
        nodes = {node.name: node for node in old.nodes}
        saga.migrate(
            old,
            input=lambda was: Weighed(grams=1, **was.model_dump()),
            steps={nodes["book"]: book, nodes["called"]: called, nodes["send"]: send},
        )
    return saga


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Open the world of this process."""
    yield World(str(Settings.from_env().database_url))


def made(versions: Sequence[str], settings: Settings | None = None) -> Milepost:
    """Return the service with versions "1", "2", "1-edited"."""
    v1 = first(without_label="1-edited" in versions)
    sagas: list[Saga[Any]] = [v1] if {"1", "1-edited"} & set(versions) else []
    if "2" in versions:
        sagas.append(second(v1))
    service = Milepost(PREFIX, sagas=sagas, settings=settings)
    service.provide(World, world)
    return service


service = made(os.environ.get("VERSIONS", "1").split(","))
