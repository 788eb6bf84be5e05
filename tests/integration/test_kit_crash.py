"""What runs again when the worker dies before the effect, after it, and after the record, for every `repeat`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from milepost import RunState, Saga, Step, StepState

from tests.support.kitsagas import (
    Elsewhere,
    ask,
    ask_act,
    blind,
    doubtful,
    never,
    never_act,
    safe,
    safe_act,
    settled,
    unseen,
    unsettle,
    within,
    within_act,
)
from tests.support.kitshop import SETTLE, PlaceOrder, closed, opened, rows, step_row

When: TypeAlias = Literal["before", "after_effect", "after_record"]
ORDER = PlaceOrder(order_id="o-1")
DONE, PERSON = RunState.SUCCEEDED, RunState.MANUAL_REQUIRED


class Outcome(NamedTuple):
    """What is expected of the step at which the process dies.

    Args:
        calls: How often its function is called, in all.
        effects: How often the world changes.
        attempts: Tries that the row counts.
        asked: Probes.
        result: What the step's result says.
    """

    state: RunState
    calls: int
    effects: int
    attempts: int
    asked: int = 0
    result: str = ""


MATRIX: list[tuple[Saga[PlaceOrder], Step[PlaceOrder, Any], When, Outcome]] = [
    (safe, safe_act, "before", Outcome(DONE, calls=1, effects=1, attempts=2, result="try 2")),
    (safe, safe_act, "after_effect", Outcome(DONE, calls=2, effects=1, attempts=2, result="try 2")),
    (safe, safe_act, "after_record", Outcome(DONE, calls=1, effects=1, attempts=1, result="try 1")),
    # The probe's first "absent" comes before `settle` and does not count; the second one does.
    (ask, ask_act, "before", Outcome(DONE, calls=1, effects=1, attempts=2, asked=2, result="called")),
    (ask, ask_act, "after_effect", Outcome(DONE, calls=1, effects=1, attempts=1, asked=1, result="found")),
    (ask, ask_act, "after_record", Outcome(DONE, calls=1, effects=1, attempts=1, result="called")),
    (never, never_act, "before", Outcome(PERSON, calls=0, effects=0, attempts=1)),
    (never, never_act, "after_effect", Outcome(PERSON, calls=1, effects=1, attempts=1)),
    (never, never_act, "after_record", Outcome(DONE, calls=1, effects=1, attempts=1, result="called")),
    (within, within_act, "before", Outcome(DONE, calls=1, effects=1, attempts=2, result="try 2")),
    (within, within_act, "after_effect", Outcome(DONE, calls=2, effects=1, attempts=2, result="try 2")),
    (within, within_act, "after_record", Outcome(DONE, calls=1, effects=1, attempts=1, result="try 1")),
]


@pytest.mark.parametrize(
    ("saga", "act", "when", "expected"), MATRIX, ids=[f"{row[0].name}-{row[2]}" for row in MATRIX]
)
async def test_the_worker_dies(
    saga: Saga[PlaceOrder], act: Step[PlaceOrder, Any], when: When, expected: Outcome
) -> None:
    elsewhere = Elsewhere()
    async with opened(saga) as (kit, _, service):
        kit.provide(Elsewhere, elsewhere)
        kit.crash(act, when=when)
        run = await kit.start(saga, ORDER)
        await kit.until(run, expected.state)
        assert elsewhere.called("act") == expected.calls
        assert elsewhere.happened("act") == expected.effects
        assert elsewhere.asked == expected.asked
        row = await step_row(service, run, "act")
        assert row["attempt"] == expected.attempts
        if expected.state is PERSON:
            assert (row["state"], row["code"]) == ("MANUAL_REQUIRED", "OUTCOME_UNKNOWN")
            await kit.until_step(run, act, StepState.UNKNOWN)  # passed through within the one change
            await kit.advance(timedelta(days=7))
            assert elsewhere.called("act") == expected.calls
            return
        assert (await kit.result(run, act)).tracking_id == expected.result
        assert elsewhere.called("after") == 1
        assert await rows(service, closed) == (["o-1"] if saga is within else [])


async def test_the_step_after_the_record_was_claimed_by_the_dead_and_is_taken_over() -> None:
    elsewhere = Elsewhere()
    async with opened(safe) as (kit, _, service):
        kit.provide(Elsewhere, elsewhere)
        kit.crash(safe_act, when="after_record")
        run = await kit.start(safe, ORDER)
        await kit.until(run, DONE)
        assert (await step_row(service, run, "after"))["attempt"] == 2
        assert elsewhere.called("after") == 1


async def test_the_worker_dies_again_and_again() -> None:
    elsewhere = Elsewhere()
    async with opened(safe) as (kit, _, service):
        kit.provide(Elsewhere, elsewhere)
        for _ in range(2):
            kit.crash(safe_act, when="before")
            kit.crash(safe_act, when="after_effect")
        run = await kit.start(safe, ORDER)
        await kit.until(run, DONE)
        assert (await step_row(service, run, "act"))["attempt"] == 5
        assert (elsewhere.called("act"), elsewhere.happened("act")) == (3, 1)


async def test_absent_counts_only_after_settle() -> None:
    elsewhere = Elsewhere()
    async with opened(ask) as (kit, _, service):
        kit.provide(Elsewhere, elsewhere)
        kit.crash(ask_act, when="before")
        run = await kit.start(ask, ORDER)
        await kit.advance(SETTLE - timedelta(seconds=1))
        assert (elsewhere.asked, elsewhere.called("act")) == (1, 0)
        assert (await step_row(service, run, "act"))["state"] == "UNKNOWN"
        await kit.advance(timedelta(seconds=1))
        assert (elsewhere.asked, elsewhere.called("act")) == (2, 1)


async def test_a_safe_step_in_doubt_is_settled_by_its_own_key_before_it_is_undone() -> None:
    elsewhere = Elsewhere()
    async with opened(doubtful) as (kit, _, service):
        kit.provide(Elsewhere, elsewhere)
        kit.lose_reply(settled)
        run = await kit.start(doubtful, ORDER)
        await kit.until_step(run, settled, StepState.UNKNOWN)
        await kit.until(run, RunState.COMPENSATED)
        await kit.until_step(run, unsettle, StepState.COMPENSATED)
        assert (elsewhere.called("settled"), elsewhere.happened("settled")) == (2, 1)
        assert elsewhere.calls[-1] == "undo learned"
        assert (await step_row(service, run, "settled"))["attempt"] == 1


async def test_a_safe_step_in_doubt_whose_repeat_is_refused_is_not_undone() -> None:
    elsewhere = Elsewhere()
    async with opened(doubtful) as (kit, _, _service):
        kit.provide(Elsewhere, elsewhere)
        kit.lose_reply(settled)
        run = await kit.start(doubtful, ORDER)
        await kit.until_step(run, settled, StepState.UNKNOWN)
        kit.fail(settled, code="UNKNOWN_KEY")
        await kit.until(run, RunState.FAILED)
        assert not any(call.startswith("undo") for call in elsewhere.calls)


async def test_a_blind_undo_runs_without_knowing() -> None:
    elsewhere = Elsewhere()
    async with opened(blind) as (kit, _, _service):
        kit.provide(Elsewhere, elsewhere)
        kit.lose_reply(unseen)
        run = await kit.start(blind, ORDER)
        await kit.until(run, RunState.COMPENSATED)
        assert elsewhere.called("unseen") == 1
        assert elsewhere.calls[-1] == "undo None"
