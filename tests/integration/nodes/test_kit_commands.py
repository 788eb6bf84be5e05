"""Commands and timers in the kit: a test plays the participant."""

from __future__ import annotations

from datetime import timedelta

from milepost import Command, Context, Event, Refused, Repeat, Retry, RunRef, RunState, Saga, StepState
from milepost.testing import Kit

from tests.support.kitshop import PlaceOrder, opened

ORDER = PlaceOrder(order_id="o-1")
MINUTE = timedelta(minutes=1)


class Booked(Event, type="kit.booked", topic="kit-trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="kit.book", topic="kit-trucks", key="truck"):
    truck: str


class Cancelled(Event, type="kit.cancelled", topic="kit-trucks", key="truck"):
    truck: str


class Cancel(Command[Cancelled], type="kit.cancel", topic="kit-trucks", key="truck"):
    truck: str


trip = Saga("kit-trip", version=1, input=PlaceOrder, key=lambda given: given.order_id)
booked = trip.command(
    "booked", lambda v: Book(truck=v.input.order_id), reply=Booked, timeout=MINUTE, repeat=Repeat.SAFE
)
rest = trip.timer("rest", timedelta(hours=8))


@booked.undo
async def cancel(ctx: Context[PlaceOrder], done: Booked) -> None:
    ctx.emit(Cancel(truck=done.truck))


@trip.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
async def drive(ctx: Context[PlaceOrder]) -> None: ...


trip.flow(booked, rest, drive)


async def test_the_reply_lets_the_run_go_on_and_the_timer_waits_for_the_clock() -> None:
    async with opened(trip) as (kit, _, _):
        run = await kit.start(trip, ORDER)
        await kit.until_step(run, booked, StepState.WAITING)
        assert await kit.published(Book) == [Book(truck="o-1")]
        await kit.reply(run, booked, Booked(truck="o-1"))
        await kit.until_step(run, rest, StepState.WAITING)
        assert (await kit.result(run, booked)).truck == "o-1"
        await kit.advance(timedelta(hours=8))
        await kit.until(run, RunState.SUCCEEDED)


async def test_a_refusal_fails_and_silence_asks_again() -> None:
    async with opened(trip) as (kit, _, _):
        run = await kit.start(trip, ORDER)
        await kit.until_step(run, booked, StepState.WAITING)
        await kit.advance(MINUTE)
        assert len(await kit.published(Book)) == 2
        await kit.reply(run, booked, Refused("NO_TRUCK", "none is free"))
        await kit.until(run, RunState.FAILED)


async def test_the_undo_is_done_when_its_command_is_answered() -> None:
    async with opened(trip) as (kit, _, _):
        kit.fail(drive, code="ROAD_CLOSED")
        run = await kit.start(trip, ORDER)
        await _booked(kit, run)
        await kit.advance(timedelta(hours=8))
        await kit.until_step(run, cancel, StepState.WAITING)
        assert await kit.published(Cancel) == [Cancel(truck="o-1")]
        await kit.reply(run, cancel, Cancelled(truck="o-1"))
        await kit.until(run, RunState.COMPENSATED)


async def _booked(kit: Kit, run: RunRef) -> None:
    await kit.until_step(run, booked, StepState.WAITING)
    await kit.reply(run, booked, Booked(truck="o-1"))
