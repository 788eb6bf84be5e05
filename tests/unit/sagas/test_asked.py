"""Waits that are asked about after their timeout."""

from __future__ import annotations

from datetime import timedelta

import pytest
from milepost.sagas.facts import (
    ProbeAbsent,
    ProbeAnswer,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Wake,
)
from milepost.sagas.model import Work
from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, MINUTE, NOW, SECOND, Play
from tests.support.waits import DAY, closed, waiting


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
