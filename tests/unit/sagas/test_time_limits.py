"""Time limits of runs: who acts on them first, when a run is looked at, and what counts as active."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from milepost.sagas import timing
from milepost.sagas.facts import Claim, Succeeded, Wake
from milepost.sagas.saga import Saga
from milepost.schemas.errors import DefinitionError, UsageError
from milepost.schemas.options import Repeat, Then
from milepost.schemas.states import RunState, StepState

from tests.support.limits import DUE, ended, playing, saga_of, time_is_over
from tests.support.sagas import (
    HOUR,
    LIMITS,
    MINUTE,
    NOW,
    OTHER,
    Order,
    Play,
    add_step,
    add_tx,
    flow,
    new_saga,
)
from tests.support.waits import DAY, add_wait

# --- before anybody has looked --------------------------------------------------------------------------


def test_no_step_is_claimed_after_the_deadline_and_whoever_tries_stops_the_run() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.now = DUE
    decision = play.send(Claim("second", OTHER))
    assert (decision.answer, decision.claimed, play.state("second")) == ("changed", None, StepState.CANCELLED)
    assert ended(play, "first")


@pytest.mark.parametrize("inline", [True, False])
def test_a_step_that_finishes_after_the_deadline_begins_no_other(inline: bool) -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    held = play.claim("first")
    play.now = DUE
    decision = play.send(Succeeded("first", held.fence, {"id": "x"}))
    assert not inline or play.then_claim(decision).claimed is None
    assert play.run.step("second") is None
    assert ended(play, "first")


def test_the_last_step_wins_if_it_finishes_before_anybody_has_looked() -> None:
    play = playing(saga_of(Repeat.SAFE))
    held = play.claim("first")
    play.now = DUE
    play.send(Succeeded("first", held.fence, {"id": "x"}))
    assert (play.run.state, play.run.cause) == (RunState.SUCCEEDED, None)


# --- what is under way when it stops --------------------------------------------------------------------


def test_a_step_that_is_handed_back_is_not_announced_again() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.claim("second")
    time_is_over(play)
    play.hand_back("second")
    assert play.state("second") is StepState.CANCELLED
    assert ended(play, "first")


def test_a_transactional_step_whose_worker_is_lost_has_done_nothing() -> None:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    add_tx(saga, "second", no_undo="none needed")
    play = playing(flow(saga))
    play.succeed("first")
    play.claim("second")
    time_is_over(play)
    play.lose("second")
    assert play.state("second") is StepState.FAILED
    assert ended(play, "first")


@pytest.mark.parametrize("blind", [True, False])
def test_a_call_that_nobody_may_repeat_goes_to_a_person_unless_its_undo_is_blind(blind: bool) -> None:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    add_step(saga, "second", Repeat.NEVER, undo=not blind, blind=blind)
    play = playing(flow(saga))
    play.succeed("first")
    play.claim("second")
    time_is_over(play)
    play.lose("second")
    if blind:
        assert ended(play, "second", "first")
    else:
        assert (play.run.state, play.run.cause) == (RunState.MANUAL_REQUIRED, "DEADLINE")


# --- when it is looked at -------------------------------------------------------------------------------


def test_the_run_wakes_at_its_deadline_and_its_index_entry_is_left_alone_until_then() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, Repeat.SAFE))
    seen = [play.run.wake_at]
    for name in ("first", "second"):
        play.succeed(name)
        play.now += MINUTE
        seen.append(play.run.wake_at)
    assert seen == [DUE] * 3
    time_is_over(play)
    assert play.run.wake_at == DUE + LIMITS.sweep


def test_a_deadline_further_off_than_the_sweep_is_reached_by_sweeps() -> None:
    play = playing(saga_of(Repeat.SAFE), NOW + 3 * DAY)
    assert play.run.wake_at == NOW + LIMITS.sweep
    wakes = []
    while play.run.state is not RunState.EXPIRED:
        play.wake()
        wakes.append(play.now)
    assert wakes == [NOW + DAY, NOW + 2 * DAY, NOW + 3 * DAY]


# --- active time ----------------------------------------------------------------------------------------


def active_saga() -> Play:
    """Return a run that may be active for an hour, and waits for up to three days after its first step."""
    saga = new_saga()
    saga.active_timeout = HOUR
    add_step(saga, "ship", undo=True)
    add_wait(saga, timeout=3 * DAY)
    add_step(saga, "pack", undo=True)
    add_step(saga, "close", on_failure=Then.PERSON)
    return playing(flow(saga), None)


def test_active_time_does_not_count_waiting() -> None:
    play = active_saga()
    assert play.run.wake_at == NOW + LIMITS.sweep, "the insert sets it earlier, which only the database can"
    play.now += 40 * MINUTE
    play.succeed("ship")
    assert (play.run.state, play.run.active_for, play.run.active_since) == (
        RunState.WAITING,
        40 * MINUTE,
        None,
    )
    play.now += 2 * DAY
    assert play.send(Wake(None, 0)).run.state is RunState.WAITING
    play.signal("delivered")
    assert (play.run.state, play.run.active_since) == (RunState.RUNNING, play.now)
    assert play.run.wake_at == play.now + 20 * MINUTE
    play.now += 19 * MINUTE
    play.succeed("pack")
    assert play.run.state is RunState.RUNNING
    play.wake()
    assert play.state("close") is StepState.CANCELLED
    assert ended(play, "pack", "ship", cause="ACTIVE_TIMEOUT")
    assert play.run.active_for == HOUR


def test_active_time_does_not_count_a_person() -> None:
    saga = new_saga()
    saga.active_timeout = HOUR
    add_step(saga, "first", on_failure=Then.PERSON)
    play = playing(flow(saga), None)
    play.now += 10 * MINUTE
    play.fail("first")
    play.now += 5 * HOUR
    play.send(Wake(None, 0))
    assert (play.run.state, play.run.active_for) == (RunState.MANUAL_REQUIRED, 10 * MINUTE)


def test_nothing_is_counted_where_nothing_is_limited() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE), None)
    play.now += MINUTE
    play.succeed("first")
    assert (play.run.active_for, play.run.active_since) == (timedelta(0), None)


def test_the_earlier_of_both_limits_counts() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, active_timeout=2 * HOUR))
    time_is_over(play)
    assert ended(play)
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, active_timeout=30 * MINUTE))
    time_is_over(play)
    assert ended(play, cause="ACTIVE_TIMEOUT")


# --- the definition -------------------------------------------------------------------------------------


def with_deadline(returned: Any) -> Any:
    """Return the definition of a saga whose deadline is what was given, or raises it."""

    def deadline(order: Order) -> datetime:
        if isinstance(returned, Exception):
            raise returned
        return returned  # type: ignore[no-any-return]

    saga = Saga("order", version=1, input=Order, key=lambda order: order.id, deadline=deadline)
    add_step(saga, "first")
    return flow(saga)


def test_a_deadline_is_kept_in_utc() -> None:
    at = datetime(2026, 3, 31, 18, tzinfo=timezone(timedelta(hours=2)))
    found = timing.deadline_of(with_deadline(at), Order(id="o"))
    assert (found, found and found.tzinfo) == (at, UTC)
    assert timing.deadline_of(saga_of(Repeat.SAFE), Order(id="o")) is None


@pytest.mark.parametrize(
    ("returned", "code", "says"),
    [
        (datetime(2026, 3, 31, 18), "MP339", "has no time zone"),
        (None, "MP339", "is no datetime"),
        (DAY, "MP339", "is no datetime"),
        (datetime.max.replace(tzinfo=timezone(-HOUR)), "MP339", "beyond what UTC can hold"),
        (KeyError("due"), "MP338", "raised KeyError: 'due'"),
    ],
)
def test_a_deadline_that_is_no_instant_is_refused(returned: Any, code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        timing.deadline_of(with_deadline(returned), Order(id="o"))
    assert refused.value.code == code
    assert "order v1" in refused.value.text


@pytest.mark.parametrize(
    ("option", "value"),
    [("active_timeout", timedelta(0)), ("active_timeout", 3651 * DAY), ("deadline", NOW)],
)
def test_a_limit_that_limits_nothing_is_refused(option: str, value: Any) -> None:
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id, **{option: value})
    add_step(saga, "first")
    with pytest.raises(DefinitionError, match=f"order v1: {option}=") as refused:
        flow(saga)
    assert refused.value.code == "MP113"


def test_limits_are_policy_and_never_shape() -> None:
    plain, limited = saga_of(Repeat.SAFE), saga_of(Repeat.SAFE, active_timeout=HOUR)
    assert plain.shape == limited.shape
    assert plain.policy == "f19f8756a57ad71f8c46e769b6500a802bc3f42e5250f41bf1bdd0e24adc9636", (
        "as it always was"
    )
    assert len({plain.policy, limited.policy, saga_of(Repeat.SAFE, active_timeout=2 * HOUR).policy}) == 3
    assert (timing.words(plain), timing.words(limited)) == ("", "active for at most 1:00:00")
    assert timing.words(with_deadline(NOW)) == "deadline from its input"
