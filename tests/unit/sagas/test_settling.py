"""UNKNOWN: asked, settled, or handed to a person."""

from __future__ import annotations

from datetime import timedelta

import pytest
from milepost.sagas.facts import ProbeAbsent, Probed, ProbeError, ProbeFailed, ProbeFound, ProbeInProgress
from milepost.sagas.model import Work
from milepost.schemas.options import Repeat, Retry
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, LIMITS, MINUTE, NOW, OTHER, SECOND, Play, add_step, flow, new_saga


def unknown(**options: object) -> Play:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    add_step(saga, "charge", Repeat.ASK_FIRST, probe=True, undo=True, **options)  # type: ignore[arg-type]
    add_step(saga, "after")
    play = Play(flow(saga))
    play.succeed("first")
    play.fail("charge", "unknown", "TIMEOUT")
    assert play.state("charge") is StepState.UNKNOWN
    return play


def test_a_probe_is_sent_at_once_and_claimed_under_a_fence() -> None:
    play = unknown()
    assert play.last.work == (Work("charge", "work", "default"),)
    attempt = play.step("charge").attempt
    step = play.claim("charge")
    assert (step.state, step.probes, step.attempt, step.fence) == (StepState.RECONCILING, 1, attempt, 2)
    assert step.wake_at == NOW + timedelta(seconds=30) + LIMITS.slack


def test_found_completes_the_step_with_its_result() -> None:
    play = unknown()
    decision = play.probe("charge", ProbeFound({"id": "c-1"}))
    step = play.step("charge")
    assert (step.state, step.result, step.doubt) == (StepState.SUCCEEDED, {"id": "c-1"}, False)
    assert play.state("after") is StepState.PENDING
    settled = decision.settled[0]
    assert (settled.before, settled.decision, settled.after) == (
        "RECONCILING",
        "MARK_AS_SUCCESS",
        "SUCCEEDED",
    )
    assert settled.evidence == {"answer": "found", "result": {"id": "c-1"}}


def test_absent_counts_only_once_settle_has_passed() -> None:
    play = unknown()
    play.now = NOW + 59 * SECOND
    decision = play.probe("charge", ProbeAbsent())
    assert (play.state("charge"), play.step("charge").wake_at) == (StepState.UNKNOWN, NOW + MINUTE)
    assert decision.settled[0].decision == "NONE"
    play.wake("charge")
    assert play.last.work
    play.probe("charge", ProbeAbsent())
    step = play.step("charge")
    assert (step.state, step.doubt, step.doubt_at) == (StepState.PENDING, False, None)
    assert play.last.settled[0].decision == "RETRY"
    assert play.last.work


def test_absent_asked_too_early_does_not_count_when_its_answer_comes_late() -> None:
    """A prober that freezes between question and answer must not cause the second charge."""
    play = unknown()
    fence = play.claim("charge").fence
    play.now = NOW + 2 * MINUTE
    decision = play.send(Probed("charge", fence, ProbeAbsent()))
    assert play.state("charge") is StepState.UNKNOWN
    assert decision.work == (Work("charge", "work", "default"),)
    play.probe("charge", ProbeAbsent())
    assert play.state("charge") is StepState.PENDING


def test_settle_is_counted_from_the_end_of_the_lost_workers_lease() -> None:
    saga = new_saga()
    add_step(saga, "charge", Repeat.ASK_FIRST, probe=True)
    play = Play(flow(saga))
    play.claim("charge")
    play.now = NOW + 50 * SECOND
    play.lose("charge", NOW + 30 * SECOND)
    play.now = NOW + 80 * SECOND
    play.probe("charge", ProbeAbsent())
    assert play.step("charge").wake_at == NOW + 90 * SECOND


def test_absent_with_tries_used_up_fails_and_is_not_undone() -> None:
    play = unknown(retry=Retry(attempts=1))
    play.now += HOUR / 2
    play.probe("charge", ProbeAbsent())
    assert play.state("charge") is StepState.FAILED
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATING, "TIMEOUT")
    assert play.run.step("undo_charge") is None
    assert play.state("undo_first") is StepState.COMPENSATION_PENDING


def test_in_progress_is_asked_again_when_it_says() -> None:
    play = unknown()
    play.probe("charge", ProbeInProgress(45 * SECOND))
    assert (play.state("charge"), play.step("charge").wake_at) == (StepState.UNKNOWN, NOW + 45 * SECOND)


def test_in_progress_for_years_is_asked_a_last_time_when_give_up_comes() -> None:
    play = unknown()
    play.probe("charge", ProbeInProgress(timedelta.max))
    assert play.step("charge").wake_at == NOW + HOUR
    play.wake("charge")
    play.probe("charge", ProbeFound({"id": "late"}))
    assert play.state("charge") is StepState.SUCCEEDED


def test_a_definite_failure_fails_the_step_without_undoing_it() -> None:
    play = unknown()
    play.probe("charge", ProbeFailed("DECLINED"))
    assert (play.state("charge"), play.step("charge").code) == (StepState.FAILED, "DECLINED")
    assert play.run.step("undo_charge") is None
    assert play.run.cause == "DECLINED"


def test_a_probe_that_raises_learns_nothing_and_backs_off() -> None:
    play = unknown()
    pauses = []
    for _ in range(7):
        play.probe("charge", ProbeError("TIMEOUT", ""))
        wake_at = play.step("charge").wake_at
        assert wake_at is not None
        pauses.append((wake_at - play.now).total_seconds())
        play.wake("charge")
    assert pauses == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize("answer", [ProbeInProgress(SECOND), ProbeError("X", "")])
def test_past_give_up_a_person_is_asked(answer: ProbeInProgress | ProbeError) -> None:
    play = unknown()
    play.now = NOW + HOUR
    play.probe("charge", answer)
    assert (play.state("charge"), play.run.code) == (StepState.MANUAL_REQUIRED, "OUTCOME_UNKNOWN")
    assert play.last.settled[0].decision == "ESCALATE"


def test_a_lost_probe_is_asked_again_at_once_and_fenced() -> None:
    play = unknown()
    fence = play.claim("charge").fence
    play.lose("charge")
    assert play.state("charge") is StepState.UNKNOWN
    assert play.last.work
    late = play.send(Probed("charge", fence, ProbeAbsent()))
    assert (late.answer, late.history[0].event) == ("ignored", "step.late_result")


def test_a_probe_that_kills_its_worker_ends_with_a_person() -> None:
    play = unknown()
    for _ in range(100):
        play.now += MINUTE
        play.claim("charge")
        play.lose("charge")
        if play.run.state is RunState.MANUAL_REQUIRED:
            break
    assert play.now <= NOW + HOUR + MINUTE
    assert play.state("charge") is StepState.MANUAL_REQUIRED


def test_a_probe_handed_back_is_sent_again() -> None:
    play = unknown()
    play.claim("charge")
    play.hand_back("charge")
    assert (play.state("charge"), play.step("charge").probes) == (StepState.UNKNOWN, 0)
    assert play.last.work


def test_a_second_prober_gets_nothing() -> None:
    play = unknown()
    play.claim("charge")
    from milepost.sagas.facts import Claim

    assert play.send(Claim("charge", OTHER)).claimed is None


def test_an_unclaimed_probe_is_announced_again_and_never_given_up_by_a_timer() -> None:
    play = unknown()
    for _ in range(50):
        play.wake("charge")
        assert play.last.work
    assert play.state("charge") is StepState.UNKNOWN
    assert play.now > NOW + HOUR
