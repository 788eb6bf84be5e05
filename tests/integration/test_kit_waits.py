"""Waits whose event never comes, comes late, or is asked for: every policy, with the clock moved by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest
from milepost import Milepost, RunRef, RunState, StepState, Then, Undo, Wait
from milepost.schemas.options import OnTimeout
from milepost.testing import Kit

from tests.support.kitsagas import TIMEOUT, Elsewhere, waiting
from tests.support.kitshop import DeliveryReport, PlaceOrder, opened, step_row

ORDER = PlaceOrder(order_id="o-1")
REPORT = DeliveryReport(order_id="sent", tracking_id="o-1")
SECOND = timedelta(seconds=1)


class Play(NamedTuple):
    """A run that waits."""

    kit: Kit
    service: Milepost
    run: RunRef
    arrived: Wait[PlaceOrder, DeliveryReport]
    undo: Undo[PlaceOrder]
    elsewhere: Elsewhere

    async def state(self) -> str:
        """State of the wait."""
        return str((await step_row(self.service, self.run, "arrived"))["state"])


@asynccontextmanager
async def waiting_for(policy: OnTimeout) -> AsyncIterator[Play]:
    """Open a kit with a run that waits, one second before its timeout."""
    saga, arrived, undo = waiting(policy)
    async with opened(saga) as (kit, _, service):
        elsewhere = Elsewhere()
        kit.provide(Elsewhere, elsewhere)
        run = await kit.start(saga, ORDER)
        await kit.until_step(run, arrived, StepState.WAITING)
        await kit.advance(TIMEOUT - SECOND)
        play = Play(kit, service, run, arrived, undo, elsewhere)
        assert await play.state() == "WAITING"
        yield play


async def test_compensate() -> None:
    async with waiting_for(Then.COMPENSATE) as play:
        await play.kit.advance(SECOND)
        await play.kit.until(play.run, RunState.COMPENSATED)
        await play.kit.until_step(play.run, play.undo, StepState.COMPENSATED)
        assert (await step_row(play.service, play.run, "arrived"))["code"] == "WAIT_TIMEOUT"
        await play.kit.deliver(REPORT)
        await play.kit.advance(timedelta(days=1))
        assert play.elsewhere.called("after") == 0


async def test_an_event_in_the_last_second_is_in_time() -> None:
    async with waiting_for(Then.COMPENSATE) as play:
        await play.kit.deliver(REPORT)
        await play.kit.advance(timedelta(days=1))
        await play.kit.until(play.run, RunState.SUCCEEDED)
        assert (await play.kit.result(play.run, play.arrived)).order_id == "sent"


async def test_cancel_ends_the_run_and_undoes_nothing() -> None:
    async with waiting_for(Then.CANCEL) as play:
        await play.kit.advance(SECOND)
        await play.kit.until(play.run, RunState.CANCELLED)
        assert await play.state() == "CANCELLED"
        assert (play.elsewhere.called("after"), len(play.elsewhere.calls)) == (0, 1)


async def test_continue_goes_on_without_the_event() -> None:
    async with waiting_for(Then.CONTINUE) as play:
        await play.kit.advance(SECOND)
        await play.kit.until(play.run, RunState.SUCCEEDED)
        assert await play.state() == "SKIPPED"
        assert play.elsewhere.called("after") == 1


async def test_a_person_is_asked_and_reminded_and_nothing_else_happens() -> None:
    async with waiting_for(Then.PERSON) as play:
        await play.kit.advance(SECOND)
        await play.kit.until(play.run, RunState.MANUAL_REQUIRED)
        await play.kit.advance(timedelta(days=40))
        row = await step_row(play.service, play.run, "arrived")
        assert (row["state"], row["code"]) == ("MANUAL_REQUIRED", "WAIT_TIMEOUT")
        assert play.elsewhere.called("after") == 0


async def test_retry_waits_once_more_and_then_asks_a_person() -> None:
    async with waiting_for(Then.RETRY) as play:
        await play.kit.advance(SECOND)
        assert await play.state() == "WAITING"
        await play.kit.advance(TIMEOUT - SECOND)
        assert await play.state() == "WAITING"
        await play.kit.advance(SECOND)
        assert await play.state() == "MANUAL_REQUIRED"


async def test_retry_takes_an_event_that_comes_during_the_second_wait() -> None:
    async with waiting_for(Then.RETRY) as play:
        await play.kit.advance(timedelta(hours=1))
        await play.kit.deliver(REPORT)
        await play.kit.until(play.run, RunState.SUCCEEDED)


async def test_reconcile_finds_what_was_never_reported() -> None:
    async with waiting_for(Then.RECONCILE) as play:
        play.elsewhere.known.add("o-1")
        assert play.elsewhere.asked == 0
        await play.kit.advance(SECOND)
        await play.kit.until(play.run, RunState.SUCCEEDED)
        assert (await play.kit.result(play.run, play.arrived)).order_id == "found"
        assert play.elsewhere.asked == 1


async def test_reconcile_asks_again_and_a_late_event_still_wins() -> None:
    async with waiting_for(Then.RECONCILE) as play:
        await play.kit.advance(SECOND)
        assert (play.elsewhere.asked, await play.state()) == (1, "WAITING")
        await play.kit.advance(timedelta(hours=1))
        assert (play.elsewhere.asked, await play.state()) == (2, "WAITING")
        await play.kit.deliver(REPORT)
        await play.kit.until(play.run, RunState.SUCCEEDED)
        assert (await play.kit.result(play.run, play.arrived)).order_id == "sent"


async def test_reconcile_gives_up_to_a_person() -> None:
    async with waiting_for(Then.RECONCILE) as play:
        await play.kit.advance(SECOND + timedelta(hours=3))
        assert await play.state() == "MANUAL_REQUIRED"
        asked = play.elsewhere.asked
        await play.kit.advance(timedelta(days=2))
        assert play.elsewhere.asked == asked


async def test_until_never_moves_past_a_timeout_that_another_run_waits_for() -> None:
    async with waiting_for(Then.CANCEL) as play:
        saga = next(s for s in play.service.sagas if s.name == "wait-cancel")
        other = await play.kit.start(saga, PlaceOrder(order_id="o-2"))
        play.kit.lose_reply(
            saga.nodes[0], times=3
        )  # retried after 0.5 s, 1 s and 2 s: beyond the other's timeout
        with pytest.raises(
            AssertionError, match="arrived of wait-cancel/o-2 has not been WAITING within 1 s"
        ):
            await play.kit.until_step(other, play.arrived, StepState.WAITING, within=timedelta(seconds=1))
        assert await play.state() == "WAITING"
        await play.kit.advance(timedelta(seconds=5))
        await play.kit.until_step(other, play.arrived, StepState.WAITING)
        assert await play.state() == "CANCELLED"
