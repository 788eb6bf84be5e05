"""Replies that reach a process without the run's definition, and messages that nobody can act on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost import Command, Context, Event, Repeat, Retry, Saga
from milepost.consumers.handing import Act, HandedOver
from milepost.consumers.replies import Reply
from milepost.sagas.facts import Replied
from milepost.schemas.messages import TimerMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.waiting import until
from tests.support.workers import worker_on


class Order(BaseModel):
    id: str


class Booked(Event, type="handed.booked", topic="handed-trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="handed.book", topic="handed-trucks", key="truck"):
    truck: str


class Cancelled(Event, type="handed.cancelled", topic="handed-trucks", key="truck"):
    truck: str


class Cancel(Command[Cancelled], type="handed.cancel", topic="handed-trucks", key="truck"):
    truck: str


def trip(version: int) -> Saga[Order]:
    saga = Saga("trip", version=version, input=Order, key=lambda order: order.id)
    book = saga.command(
        "book",
        lambda v: Book(truck=v.input.id),
        reply=Booked,
        timeout=timedelta(hours=1),
        repeat=Repeat.SAFE,
    )

    @book.undo
    async def unbook(ctx: Context[Order], done: Booked) -> None:
        ctx.emit(Cancel(truck=done.truck))

    @saga.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
    async def drive(ctx: Context[Order]) -> None:
        raise RuntimeError("the road is closed")

    saga.flow(book, drive)
    return saga


@asynccontextmanager
async def both(url: str) -> AsyncIterator[tuple[Rig, Rig, UUID]]:
    """A process with version 1, one with version 2 alone, and a run of version 1 that has sent its command."""
    one, two = trip(1), trip(2)
    async with rig(url, one, name="trips") as old, rig(url, two, name="trips") as new:
        run = await old.start(one, Order(id="o-1"))
        assert (await old.states(run.id))["book"] == "WAITING"
        yield old, new, run.id


def reply(run: UUID, outcome: str = "done", direction: Any = "do") -> Reply:
    """A participant's answer; what a refusal says cannot be stored as it is."""
    if outcome == "done":
        return Reply(run, Replied("book", direction, 1, "done", {"truck": "t"}, 1, type="handed.booked"))
    return Reply(run, Replied("book", direction, 1, outcome, code="NO", message="a\0b"))


async def handed(it: Rig) -> int:
    return int(await it.value("SELECT count(*) FROM milepost.handover"))


@pytest.mark.parametrize("outcomes", [("done",), ("refused", "done"), ("done", "refused")])
async def test_a_reply_waits_for_who_has_the_definition(database_url: str, outcomes: tuple[str, ...]) -> None:
    async with both(database_url) as (old, new, run):
        for outcome in outcomes:
            await new.orchestrator.act(reply(run, outcome))
        assert (await handed(old), (await old.states(run))["book"]) == (1, "WAITING")
        assert await new.orchestrator.handed_over().turn() == 0
        assert await old.orchestrator.handed_over().turn() == 1
        assert (await handed(old), (await old.states(run))["book"]) == (0, "SUCCEEDED")
        await new.orchestrator.act(reply(run))
        assert await handed(old) == 0, "nobody waits for it any more"


async def test_a_refusal_and_the_reply_to_an_undo_wait_too(database_url: str) -> None:
    async with both(database_url) as (old, new, run), worker_on(database_url, old.service) as hand:
        await old.orchestrator.act(reply(run))
        await hand.take(run, "trip", "drive")
        await until(hand.idle)
        await hand.take(run, "trip", "unbook")
        await until(hand.idle)
        assert (await old.states(run))["unbook"] == "WAITING"
        await new.orchestrator.act(reply(run, direction="undo"))
        assert await old.orchestrator.handed_over().turn() == 1
        assert (await old.states(run))[""] == "COMPENSATED"


async def test_what_a_refusal_says_is_kept_as_far_as_a_row_can_hold_it(database_url: str) -> None:
    async with both(database_url) as (old, new, run):
        await new.orchestrator.act(reply(run, "refused"))
        assert await old.orchestrator.handed_over().turn() == 1
        row = await old.row("SELECT state, code, message FROM milepost.step WHERE name = 'book'")
        assert tuple(row) == ("FAILED", "NO", "a\ufffdb")


async def test_what_cannot_be_acted_on_is_tried_ever_more_seldom_and_keeps_nobody_back(
    database_url: str,
) -> None:
    tried: list[str] = []

    async def act(message: Any, queue: str, priority: Any) -> None:
        assert isinstance(message, TimerMessage)
        tried.append(message.step or "")
        if message.step == "broken":
            raise ValueError("this one is broken")

    acts: dict[str, Act] = {"timer": act}
    async with both(database_url) as (old, _, run):
        part = HandedOver(old.engine, "handed over", acts, ())
        insert = (
            "INSERT INTO milepost.handover (run_id, kind, step, iteration, service, pin, since)"
            " SELECT $1, 'timer', $2, n::text, 'trips', $3, milepost.clock() - interval '1 hour'"
            " FROM generate_series(1, 100) AS n"
        )
        await old.value(insert, run, "broken", old.engine.changes.definitions.pins[0])
        await old.value(
            "INSERT INTO milepost.handover (run_id, kind, step, service, pin) "
            "VALUES ($1, 'timer', 'fine', 'trips', $2)",
            run,
            old.engine.changes.definitions.pins[0],
        )
        assert await part.turn() == 0
        assert await part.turn() == 1, "a hundred broken ones stand before it"
        assert tried == ["broken"] * 100 + ["fine"]
        await old.value(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS"
            " $$ SELECT timestamptz '2100-01-01' $$"
        )
        pauses = []
        for tries in range(2, 14):
            assert await part.turn() == 0
            pauses.append(
                await old.value(
                    "SELECT extract(epoch FROM min(look_at) - milepost.clock())::float8 FROM milepost.handover"
                    " HAVING min(tries) = $1 AND max(tries) = $1",
                    tries,
                )
            )
            await old.value("UPDATE milepost.handover SET look_at = milepost.clock()")
        assert pauses == [*(2.0**n for n in range(10)), 600, 600]
