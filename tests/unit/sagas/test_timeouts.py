"""Waits that time out: what each policy does, and that a signal which is there wins."""

from __future__ import annotations

import pytest
from milepost.sagas.facts import Signalled, Wake
from milepost.sagas.model import OpenWait
from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import NOW
from tests.support.waits import DAY, closed, waiting


def test_timeout_person() -> None:
    play = waiting(Then.PERSON)
    play.wake("delivered")
    assert (play.state("delivered"), play.run.code) == (StepState.MANUAL_REQUIRED, "WAIT_TIMEOUT")
    assert closed(play)


def test_timeout_continue_leaves_no_result() -> None:
    play = waiting(Then.CONTINUE)
    play.wake("delivered")
    assert (play.state("delivered"), play.state("close")) == (StepState.SKIPPED, StepState.PENDING)
    assert (play.run.state, play.step("delivered").result) == (RunState.RUNNING, None)
    assert closed(play)


def test_timeout_continue_at_the_end_succeeds() -> None:
    play = waiting(Then.CONTINUE, after=False)
    play.wake("delivered")
    assert play.run.state is RunState.SUCCEEDED


def test_timeout_cancel_ends_without_undo() -> None:
    play = waiting(Then.CANCEL)
    play.wake("delivered")
    assert (play.state("delivered"), play.run.state) == (StepState.CANCELLED, RunState.CANCELLED)
    assert play.run.step("undo_ship") is None
    assert closed(play)


def test_timeout_compensate_undoes() -> None:
    play = waiting(Then.COMPENSATE)
    play.wake("delivered")
    assert (play.state("delivered"), play.run.state, play.run.cause) == (
        StepState.FAILED,
        RunState.COMPENSATING,
        "WAIT_TIMEOUT",
    )
    assert closed(play)
    play.succeed("undo_ship")
    assert play.run.state is RunState.COMPENSATED


def test_timeout_retry_waits_once_more_under_a_new_generation_then_a_person() -> None:
    play = waiting(Then.RETRY)
    play.wake("delivered")
    step = play.step("delivered")
    assert (step.state, step.generation, step.wake_at) == (StepState.WAITING, 2, play.now + 3 * DAY)
    assert closed(play, 1)
    assert play.last.opens == (OpenWait("delivered", 2, "test.delivered", "ship", False),)
    assert play.send(Signalled("delivered", 1, {"id": "x"})).answer == "ignored"
    play.wake("delivered")
    assert (play.state("delivered"), play.run.code) == (StepState.MANUAL_REQUIRED, "WAIT_TIMEOUT")
    assert closed(play, 2)


def test_a_signal_that_is_there_wins_over_the_timeout() -> None:
    play = waiting(Then.COMPENSATE)
    play.present("delivered")
    play.wake("delivered")
    assert (play.state("delivered"), play.run.state) == (StepState.SUCCEEDED, RunState.RUNNING)
    assert play.last.closes == ()


@pytest.mark.parametrize("signal_first", [True, False])
def test_of_timer_and_signal_exactly_one_wins(signal_first: bool) -> None:
    """Both at one instant, in both orders (scenario 32)."""
    play = waiting(Then.COMPENSATE, after=False)
    play.now = NOW + 3 * DAY
    timer = Wake("delivered", play.step("delivered").generation)
    signal = Signalled("delivered", play.step("delivered").generation, {"id": "x"})
    first, second = (signal, timer) if signal_first else (timer, signal)
    assert play.send(first).answer == "changed"
    state = play.run.state
    loser = play.send(second)
    assert (loser.answer, loser.history[0].event) == (
        "ignored",
        "timer.stale" if signal_first else "signal.late",
    )
    assert play.run.state is state
    assert state is (RunState.SUCCEEDED if signal_first else RunState.COMPENSATING)


def test_a_signal_nobody_told_of_is_found_by_the_daily_look() -> None:
    play = waiting(Then.PERSON)
    play.present("delivered")
    play.wake()
    assert play.state("delivered") is StepState.SUCCEEDED
