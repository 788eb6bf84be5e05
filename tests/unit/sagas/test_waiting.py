"""Waits: begun, satisfied, timed out by every policy, asked about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from milepost.sagas.model import (
    CloseWait,
    OpenWait,
    ProbeAbsent,
    ProbeAnswer,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Signalled,
    Wake,
    Work,
)
from milepost.schemas.options import Found, OnTimeout, Probe, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, MINUTE, NOW, SECOND, Delivered, Play, add_step, flow, new_saga

DAY = timedelta(days=1)


def waiting(
    then: OnTimeout,
    *,
    match: Callable[[Any], Any] | None = None,
    timeout: timedelta = 3 * DAY,
    after: bool = True,
    broadcast: bool = False,
) -> Play:
    saga = new_saga()
    ship = add_step(saga, "ship", undo=True)
    wait = saga.wait(
        "delivered",
        Delivered,
        match=match or (lambda v: v.result(ship).id),
        timeout=timeout,
        on_timeout=then,
        broadcast=broadcast,
    )
    if then is Then.RECONCILE:

        @wait.probe
        async def ask(ctx: Any) -> Probe[Delivered]:
            return Found(Delivered(id="x"))

    if after:
        add_step(saga, "close", on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.succeed("ship")
    return play


def test_a_wait_is_registered_under_its_generation_with_what_match_returned() -> None:
    play = waiting(Then.PERSON, broadcast=True)
    step = play.step("delivered")
    assert (step.state, step.wake_at, play.run.state) == (StepState.WAITING, NOW + 3 * DAY, RunState.WAITING)
    assert play.last.opens == (OpenWait("delivered", step.generation, "test.delivered", "ship", True),)
    assert play.last.work == ()
    assert play.events[-1] == "run.waiting"


def test_a_wait_may_be_the_first_node() -> None:
    saga = new_saga()
    saga.wait("delivered", Delivered, match=lambda v: v.input.id, timeout=DAY, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    assert (play.run.state, play.last.opens[0].key) == (RunState.WAITING, "o-1")
    play.signal("delivered")
    assert play.run.state is RunState.SUCCEEDED


def test_a_signal_completes_the_wait_with_its_body_and_the_run_goes_on() -> None:
    play = waiting(Then.PERSON)
    decision = play.signal("delivered", {"id": "ship", "more": 1})
    step = play.step("delivered")
    assert (step.state, step.result) == (StepState.SUCCEEDED, {"id": "ship", "more": 1})
    assert (play.run.state, play.state("close")) == (RunState.RUNNING, StepState.PENDING)
    assert decision.closes == ()
    assert [entry.event for entry in decision.history] == ["run.resumed", "step.completed"]


def test_a_signal_told_twice_is_late_and_recorded() -> None:
    play = waiting(Then.PERSON)
    generation = play.step("delivered").generation
    play.signal("delivered")
    again = play.send(Signalled("delivered", generation, {"id": "x"}))
    assert (again.answer, again.history[0].event) == ("ignored", "signal.late")


def test_a_signal_that_is_not_the_event_goes_to_a_person() -> None:
    play = waiting(Then.PERSON)
    play.signal("delivered", {"nothing": True})
    assert (play.run.state, play.run.code) == (RunState.MANUAL_REQUIRED, "SIGNAL_INVALID")


def test_a_signal_for_a_step_is_refused() -> None:
    play = waiting(Then.PERSON)
    assert play.send(Signalled("ship", 1, {})).answer == "refused"


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (lambda v: 1 / 0, "ZeroDivisionError"),
        (lambda v: "", "is empty"),
        (lambda v: 7, "is no text but int"),
        (lambda v: "a\x00b", "U+0000"),
        (lambda v: "\ud800", "lone surrogate"),
        (lambda v: "x" * 600, "longer than 512"),
    ],
)
def test_a_match_that_fails_goes_to_a_person_with_the_reason(match: Callable[[Any], Any], words: str) -> None:
    play = waiting(Then.PERSON, match=match)
    step = play.step("delivered")
    assert (step.state, step.code, play.run.code) == (
        StepState.MANUAL_REQUIRED,
        "MATCH_FAILED",
        "MATCH_FAILED",
    )
    assert words in (step.message or "")
    assert play.last.opens == ()


# --- timeouts ---------------------------------------------------------------------------------------


def closed(play: Play, generation: int = 1) -> bool:
    return play.last.closes == (CloseWait("delivered", generation),)


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


# --- asked ------------------------------------------------------------------------------------------


def asked(timeout: timedelta = 3 * DAY) -> Play:
    play = waiting(Then.RECONCILE, timeout=timeout)
    play.wake("delivered")
    return play


def test_timeout_reconcile_sends_the_probe_and_keeps_the_wait_open() -> None:
    play = asked()
    step = play.step("delivered")
    assert (step.state, step.doubt_at, step.generation) == (StepState.UNKNOWN, play.now, 1)
    assert play.last.work == (Work("delivered", "work", "default"),)
    assert play.last.closes == ()
    assert play.run.state is RunState.WAITING
    claimed = play.claim("delivered")
    assert (claimed.state, claimed.generation, claimed.probes) == (StepState.RECONCILING, 1, 1)


def test_found_completes_the_wait_and_closes_it() -> None:
    play = asked()
    play.probe("delivered", ProbeFound({"id": "ship"}))
    assert (play.state("delivered"), play.state("close")) == (StepState.SUCCEEDED, StepState.PENDING)
    assert closed(play)
    assert play.last.settled[0].decision == "MARK_AS_SUCCESS"


@pytest.mark.parametrize(
    ("answer", "pause"),
    [(ProbeAbsent(), HOUR), (ProbeInProgress(90 * SECOND), 90 * SECOND), (ProbeError("X", ""), 10 * SECOND)],
)
def test_an_answer_that_settles_nothing_waits_on(answer: ProbeAnswer, pause: timedelta) -> None:
    play = asked()
    play.now += SECOND
    play.probe("delivered", answer)
    step = play.step("delivered")
    first_timeout = NOW + 3 * DAY
    assert (step.state, step.wake_at) == (StepState.WAITING, min(play.now + pause, first_timeout + HOUR))
    assert step.generation == 1
    play.signal("delivered")  # and its signal may still come
    assert play.state("delivered") is StepState.SUCCEEDED


def test_a_short_wait_is_asked_about_at_its_own_pace() -> None:
    play = asked(timeout=5 * MINUTE)
    play.probe("delivered", ProbeAbsent())
    assert play.step("delivered").wake_at == play.now + 5 * MINUTE


def test_asking_ends_with_a_person_give_up_after_the_first_timeout() -> None:
    play = asked(timeout=5 * MINUTE)
    first_timeout = play.now
    while play.run.state is RunState.WAITING:
        play.probe("delivered", ProbeAbsent())
        if play.run.state is RunState.WAITING:
            play.wake("delivered")
    assert (play.state("delivered"), play.run.code) == (StepState.MANUAL_REQUIRED, "WAIT_TIMEOUT")
    assert play.now == first_timeout + HOUR
    assert closed(play)


def test_a_definite_no_goes_to_a_person() -> None:
    play = asked()
    play.probe("delivered", ProbeFailed("LOST_AT_SEA"))
    assert (play.state("delivered"), play.run.code) == (StepState.MANUAL_REQUIRED, "LOST_AT_SEA")
    assert closed(play)


@pytest.mark.parametrize("claimed", [False, True])
def test_the_signal_wins_over_a_probe_that_is_under_way(claimed: bool) -> None:
    play = asked()
    fence = play.claim("delivered").fence if claimed else 1
    play.signal("delivered")
    assert (play.state("delivered"), play.step("delivered").worker) == (StepState.SUCCEEDED, None)
    late = play.send(Probed("delivered", fence, ProbeAbsent()))
    assert (late.answer, late.history[0].event) == ("ignored", "step.late_result")


@pytest.mark.parametrize("answer", [ProbeAbsent(), ProbeFound({"id": "probe"}), ProbeFailed("X")])
def test_a_signal_that_is_there_wins_over_the_probes_answer(answer: ProbeAnswer) -> None:
    play = asked()
    fence = play.claim("delivered").fence
    play.present("delivered")
    play.send(Probed("delivered", fence, answer))
    assert (play.state("delivered"), play.step("delivered").result) == (StepState.SUCCEEDED, {"id": "o-1"})
    assert play.last.closes == ()


def test_a_repeated_timer_does_not_disturb_a_probe_under_way() -> None:
    play = asked()
    play.claim("delivered")
    play.now += SECOND
    assert play.send(Wake("delivered", 1)).answer == "ignored"
    play.now += MINUTE
    play.send(Wake("delivered", 1))  # its hard timeout
    assert play.state("delivered") is StepState.UNKNOWN


def test_a_lost_probe_of_a_wait_is_asked_again() -> None:
    play = asked()
    play.claim("delivered")
    play.lose("delivered")
    assert play.state("delivered") is StepState.UNKNOWN
    assert play.last.work
    play.now += HOUR
    play.claim("delivered")
    play.lose("delivered")
    assert play.run.state is RunState.MANUAL_REQUIRED
    assert closed(play)


def test_a_lost_probe_whose_signal_is_there_completes_the_wait() -> None:
    play = asked()
    play.claim("delivered")
    play.present("delivered")
    play.lose("delivered")
    assert play.state("delivered") is StepState.SUCCEEDED


def test_a_wait_nobody_may_ask_about_any_more_goes_to_a_person() -> None:
    play = asked()
    play.definition = waiting(Then.PERSON).definition
    play.wake("delivered")
    assert play.run.state is RunState.MANUAL_REQUIRED
    assert closed(play)
