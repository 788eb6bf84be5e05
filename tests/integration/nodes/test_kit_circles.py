"""A run that would wait for itself, or for one that waits for it, is told so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from milepost import Context, RunRef, RunState, Saga, Then
from milepost.testing import Kit
from pydantic import BaseModel

from tests.support.kitshop import opened


class Named(BaseModel):
    name: str


def new_saga(name: str) -> Saga[Named]:
    return Saga(name, version=1, input=Named, key=lambda given: given.name)


async def code_of(kit: Kit, step: str) -> str | None:
    """The code of the one row of that name that is in front of a person."""
    query = "SELECT code FROM milepost.step WHERE name = $1 AND state = 'MANUAL_REQUIRED'"
    code: str | None = await kit._opened.database.pool.fetchval(query, step)
    return code


async def test_a_run_that_starts_itself_stands_in_front_of_a_person() -> None:
    saga = new_saga("kit-itself")
    saga.flow(saga.child("again", saga, input=lambda view: view.input, no_undo="none needed"))
    async with opened(saga) as (kit, _, _):
        await kit.until(await kit.start(saga, Named(name="m")), RunState.MANUAL_REQUIRED)
        assert await code_of(kit, "again") == "MP397"


async def test_an_item_that_is_its_own_parent_fails() -> None:
    saga = new_saga("kit-own-item")

    async def itself(ctx: Context[Named]) -> AsyncIterator[Named]:
        yield ctx.input

    saga.flow(saga.each("again", saga, items=itself, no_undo="none needed", on_failure=Then.PERSON))
    async with opened(saga) as (kit, _, _):
        await kit.until(await kit.start(saga, Named(name="m")), RunState.MANUAL_REQUIRED)
        query = "SELECT code FROM milepost.fanout_item WHERE state = 'FAILED'"
        assert await kit._opened.database.pool.fetchval(query) == "MP397"


async def test_two_that_would_wait_for_each_other() -> None:
    one, other = new_saga("kit-one"), new_saga("kit-other")
    one.flow(one.child("down", other, input=lambda view: view.input, no_undo="none needed"))
    other.flow(other.child("up", one, input=lambda view: view.input, no_undo="none needed"))
    async with opened(one, other) as (kit, _, _):
        await kit.start(one, Named(name="m"))
        await kit.advance(timedelta(seconds=30))
        down = await kit._opened.database.pool.fetchval(
            "SELECT id FROM milepost.run WHERE saga = 'kit-other'"
        )
        assert down is not None
        await kit.until(RunRef(id=down, tenant="", saga="kit-other", key="m"), RunState.MANUAL_REQUIRED)
        assert await code_of(kit, "up") == "MP397"
