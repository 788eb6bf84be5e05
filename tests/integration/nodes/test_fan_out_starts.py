"""How items begin: many together, or alone where their runs take a lock or wait; and with what input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from milepost import Context, Event, Milepost, Repeat, Retry, RunState, Saga, StepState, Then
from milepost.consumers import fanout
from milepost.consumers.engine import Engine, changes_of
from milepost.consumers.fanout import Place, look_after_items
from milepost.testing import Kit
from pydantic import BaseModel

from tests.support.kitshop import opened

ONCE = Retry(attempts=1)


class Letter(BaseModel):
    """Input of an item."""

    name: str


class Mailing(BaseModel):
    """Input of the run."""

    id: str
    until: datetime | None = None


class Opened(Event, type="letter.opened", topic="letters", correlate="name"):
    """A letter was opened."""

    name: str


async def three(ctx: Context[Mailing]) -> AsyncIterator[Letter]:
    """List three letters."""
    for n in range(3):
        yield Letter(name=f"{ctx.input.id}-{n}")


def letters(name: str, **options: Any) -> Saga[Letter]:
    """Return the saga of a letter, declared as the options say."""
    return Saga(name, version=1, input=Letter, key=lambda given: given.name, **options)


def mailing(of: Saga[Letter], **options: Any) -> tuple[Saga[Mailing], Any]:
    """Return a saga that fans out."""
    saga = Saga(f"mailing-of-{of.name}", version=1, input=Mailing, key=lambda given: given.id, **options)
    node = saga.each("send", of, items=three, no_undo="none needed")
    saga.flow(node)
    return saga, node


def posted(saga: Saga[Letter]) -> Any:
    """Add a step to the saga of a letter."""

    @saga.step(repeat=Repeat.SAFE, retry=ONCE)
    async def post(ctx: Context[Letter]) -> None: ...

    return post


async def begun(kit: Kit) -> list[tuple[str, str]]:
    """Return key and state of the items' runs."""
    rows = await kit._opened.database.pool.fetch(
        "SELECT key, state FROM milepost.run WHERE saga LIKE 'kit-%' ORDER BY key"
    )
    return [(row["key"], row["state"]) for row in rows]


async def test_items_that_share_a_lock_are_begun_and_go_one_after_the_other() -> None:
    letter = letters("kit-locked", lock=lambda given: "the printer")
    letter.flow(posted(letter), letter.timer("dry", timedelta(hours=1)))
    saga, _ = mailing(letter)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m"))
        await kit.advance(timedelta(minutes=1))
        assert await begun(kit) == [("m-0", "WAITING"), ("m-1", "PENDING"), ("m-2", "PENDING")]
        await kit.advance(timedelta(hours=4))
        await kit.until(run, RunState.SUCCEEDED)


async def test_items_that_begin_with_a_wait_take_an_event_that_was_there_before_them() -> None:
    letter = letters("kit-waiting")
    letter.flow(
        letter.wait(
            "opened", Opened, match=lambda v: v.input.name, timeout=timedelta(hours=1), on_timeout=Then.CANCEL
        ),
        posted(letter),
    )
    saga, node = mailing(letter)
    async with opened(saga, letter) as (kit, _, service):
        async with service.transaction() as tx:
            await service.signal(tx, Opened(name="m-1"))
        run = await kit.start(saga, Mailing(id="m"))
        await kit.until_step(run, node, StepState.WAITING)
        await kit.advance(timedelta(minutes=1))
        assert await begun(kit) == [("m-0", "WAITING"), ("m-1", "SUCCEEDED"), ("m-2", "WAITING")]
        for name in ("m-0", "m-2"):
            await kit.deliver(Opened(name=name))
        await kit.until(run, RunState.SUCCEEDED)


async def test_many_are_begun_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "GIVEN_OUT", 2)
    letter = letters("kit-turns")
    letter.flow(posted(letter))
    saga, node = mailing(letter)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m"))
        await kit.until(run, RunState.SUCCEEDED)
        assert (await kit.result(run, node)).succeeded == 3


async def test_items_stop_with_their_run_when_its_time_is_over() -> None:
    letter = letters("kit-late")
    letter.flow(posted(letter), letter.timer("dry", timedelta(hours=1)))
    saga, _ = mailing(letter, deadline=lambda given: given.until)
    async with opened(saga, letter) as (kit, _, _):
        until = kit._opened.clock.now() + timedelta(minutes=30)
        run = await kit.start(saga, Mailing(id="m", until=until))
        await kit.advance(timedelta(minutes=31))
        await kit.until(run, RunState.EXPIRED)
        assert {state for _, state in await begun(kit)} == {"CANCELLED"}


class Parcel(BaseModel):
    """Input of an item after the next release."""

    name: str
    weight: int


async def test_items_that_an_older_release_listed_are_brought_up_to_date() -> None:
    letter = letters("kit-older")
    letter.flow(posted(letter), letter.timer("dry", timedelta(hours=1)))
    saga = Saga("mailing", version=1, input=Mailing, key=lambda given: given.id)
    saga.flow(saga.each("send", letter, items=three, concurrency=1, no_undo="none needed"))
    parcel = Saga("kit-older", version=2, input=Parcel, key=lambda given: given.name)

    @parcel.upcast_input(from_version=1)
    def weighed(old: Letter) -> Parcel:
        return Parcel(name=old.name, weight=7)

    @parcel.step(repeat=Repeat.SAFE, retry=ONCE)
    async def post(ctx: Context[Parcel]) -> None: ...

    parcel.flow(post)
    newer = Saga("mailing", version=1, input=Mailing, key=lambda given: given.id)

    async def parcels(ctx: Context[Mailing]) -> AsyncIterator[Parcel]:
        yield Parcel(name="x", weight=1)

    newer.flow(newer.each("send", parcel, items=parcels, concurrency=2, no_undo="none needed"))
    async with opened(saga, letter) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m"))
        await kit.advance(timedelta(minutes=1))
        pool = kit._opened.database.pool
        other = Milepost(service.name, sagas=[newer, parcel], settings=kit._opened.settings)
        await look_after_items(Engine(changes_of(other), pool), Place(run.id, "send", ""))
        row = await pool.fetchrow(
            "SELECT definition, input_version, input::text AS input FROM milepost.run WHERE key = 'm-1'"
        )
        assert row is not None
        assert (row["definition"], row["input_version"], row["input"]) == (
            2,
            2,
            '{"name": "m-1", "weight": 7}',
        )
