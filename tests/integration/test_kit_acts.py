"""What a person decides, in the kit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from milepost import Context, FanOut, Repeat, Retry, RunState, Saga, StepState, Then, UsageError
from pydantic import BaseModel

from tests.support.kitshop import opened

BY: dict[str, Any] = {"by": "ann", "reason": "mended"}


class Order(BaseModel):
    id: str


class Charge(BaseModel):
    number: str


class World:
    """A saga of two steps, whose second stands in front of a person when it is refused; and what was called."""

    def __init__(self, name: str) -> None:
        self.calls: list[str] = []
        self.saga = Saga(name, version=1, input=Order, key=lambda order: order.id)

        @self.saga.step(repeat=Repeat.SAFE)
        async def reserve(ctx: Context[Order]) -> None:
            self.calls.append("reserve")

        @reserve.undo
        async def release(ctx: Context[Order], done: None) -> None:
            self.calls.append("release")

        @self.saga.step(repeat=Repeat.SAFE, on_failure=Then.PERSON, no_undo="refunds are another saga")
        async def charge(ctx: Context[Order]) -> Charge:
            self.calls.append("charge")
            return Charge(number="c-1")

        self.reserve, self.charge = reserve, charge
        self.saga.flow(reserve, charge)


async def test_a_person_retries_skips_marks_and_undoes() -> None:
    world = World("kit-acts")
    async with opened(world.saga) as (kit, _, _):
        kit.fail(world.charge, code="CLOSED", times=4)
        runs = [await kit.start(world.saga, Order(id=f"o-{n}")) for n in range(4)]
        for run in runs:
            await kit.until(run, RunState.MANUAL_REQUIRED)
        retried, skipped, marked, undone = runs

        await kit.retry(retried, world.charge, **BY)
        await kit.until(retried, RunState.SUCCEEDED)
        assert (await kit.result(retried, world.charge)).number == "c-1"

        await kit.skip(skipped, world.charge, **BY)
        await kit.until(skipped, RunState.SUCCEEDED)

        await kit.mark_succeeded(marked, world.charge, Charge(number="by hand"), **BY)
        await kit.until(marked, RunState.SUCCEEDED)
        assert (await kit.result(marked, world.charge)).number == "by hand"

        await kit.compensate(undone, **BY)
        await kit.until(undone, RunState.COMPENSATED)
        assert world.calls == [*["reserve"] * 4, "charge", "release"]


async def test_a_person_cancels_and_is_told_why_an_act_is_refused() -> None:
    world = World("kit-cancelled")
    async with opened(world.saga) as (kit, _, _):
        kit.fail(world.charge, code="CLOSED")
        run = await kit.start(world.saga, Order(id="o-1"))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        with pytest.raises(UsageError, match=r"MP375.*kit\.retry\(reserve\): refused"):
            await kit.retry(run, world.reserve, **BY)
        with pytest.raises(UsageError, match="MP614"):
            await kit.retry(run, world.charge, by="ann", reason=" ")
        await kit.cancel(run, undo=True, **BY)
        await kit.until(run, RunState.COMPENSATED)
        assert world.calls == ["reserve", "release"]


async def test_of_a_fan_out_only_what_failed_is_done_again() -> None:
    letter, calls = Saga("kit-letter-again", version=1, input=Order, key=lambda order: order.id), list[str]()

    @letter.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
    async def send(ctx: Context[Order]) -> None:
        calls.append(ctx.input.id)

    letter.flow(send)
    mailing = Saga("kit-mailing-again", version=1, input=Order, key=lambda order: order.id)

    async def letters(ctx: Context[Order]) -> AsyncIterator[Order]:
        for n in range(5):
            yield Order(id=f"{ctx.input.id}-{n}")

    sent = mailing.each("sent", letter, items=letters, on_failure=Then.PERSON, no_undo="letters stay sent")
    mailing.flow(sent)
    async with opened(mailing, letter) as (kit, _, _):
        kit.fail(send, code="MOVED", times=2)
        run = await kit.start(mailing, Order(id="m"))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        before = len(calls)
        await kit.retry(run, sent, **BY)
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.result(run, sent) == FanOut(total=5, succeeded=5, failed=0)
        assert (before, len(calls)) == (3, 5)


async def test_an_approval_is_given_once_by_who_has_the_role() -> None:
    saga = Saga("kit-approved", version=1, input=Order, key=lambda order: order.id)
    asked = saga.approval("asked", roles=frozenset({"boss"}), expires=timedelta(days=1), on_reject=Then.FAIL)
    saga.flow(asked)
    async with opened(saga) as (kit, _, _):
        given, refused = [await kit.start(saga, Order(id=f"o-{n}")) for n in range(2)]
        for run in (given, refused):
            await kit.until_step(run, asked, StepState.WAITING)
        with pytest.raises(UsageError, match="MP375"):
            await kit.approve(given, asked, roles={"clerk"}, **BY)
        await kit.approve(given, asked, **BY)
        await kit.until(given, RunState.SUCCEEDED)
        await kit.reject(refused, asked, **BY)
        await kit.until(refused, RunState.FAILED)
