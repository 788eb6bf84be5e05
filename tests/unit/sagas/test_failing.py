"""A try that fails: what each Repeat makes of each verdict, and what follows when tries are used up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from milepost.sagas.facts import Claim, ProbeError, ProbeFailed, ProbeFound, Verdict
from milepost.sagas.model import Work
from milepost.schemas.options import Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, LIMITS, NOW, SECOND, WORKER, Play, add_step, flow, new_saga

RETRY = Retry(attempts=3, first=8 * SECOND, within=None)


def one(repeat: Repeat, **options: object) -> Play:
    saga = new_saga()
    add_step(saga, "work", repeat, probe=repeat is Repeat.ASK_FIRST, retry=RETRY, **options)  # type: ignore[arg-type]
    return Play(flow(saga))


@pytest.mark.parametrize(
    ("repeat", "verdict", "state", "doubt"),
    [
        (Repeat.SAFE, "not_sent", StepState.RETRY_PENDING, False),
        (Repeat.SAFE, "retry", StepState.RETRY_PENDING, True),
        (Repeat.SAFE, "unknown", StepState.RETRY_PENDING, True),
        (Repeat.SAFE, "fatal", StepState.FAILED, False),
        (Repeat.ASK_FIRST, "not_sent", StepState.RETRY_PENDING, False),
        (Repeat.ASK_FIRST, "retry", StepState.UNKNOWN, True),
        (Repeat.ASK_FIRST, "unknown", StepState.UNKNOWN, True),
        (Repeat.ASK_FIRST, "fatal", StepState.FAILED, False),
        (Repeat.NEVER, "not_sent", StepState.RETRY_PENDING, False),
        (Repeat.NEVER, "retry", StepState.MANUAL_REQUIRED, True),
        (Repeat.NEVER, "unknown", StepState.MANUAL_REQUIRED, True),
        (Repeat.NEVER, "fatal", StepState.FAILED, False),
    ],
)
def test_a_failed_try(repeat: Repeat, verdict: Verdict, state: StepState, doubt: bool) -> None:
    play = one(repeat)
    play.fail("work", verdict)
    step = play.step("work")
    assert (step.state, step.doubt, step.doubt_at) == (state, doubt, play.now if doubt else None)
    assert "step.failed" in play.events


def test_a_retry_is_scheduled_with_full_jitter_and_sent_by_its_timer() -> None:
    play = one(Repeat.SAFE)
    play.dice = 0.25
    decision = play.fail("work", "retry")
    assert decision.work == ()
    assert play.step("work").wake_at == NOW + 2 * SECOND
    assert play.events[-2:] == ["step.failed", "step.retry_scheduled"]
    assert play.send(Claim("work", WORKER)).answer == "refused"  # not before its time
    play.wake("work")
    assert (play.state("work"), play.last.work) == (StepState.PENDING, (Work("work", "work", "default"),))


def test_retry_after_wins_when_it_is_longer() -> None:
    play = one(Repeat.SAFE)
    play.fail("work", "retry", retry_after=30 * SECOND)
    assert play.step("work").wake_at == NOW + 30 * SECOND
    play.retry("work")
    play.dice = 1 - 1e-9
    play.fail("work", "retry", retry_after=SECOND)
    wake_at = play.step("work").wake_at
    assert wake_at is not None
    assert wake_at - play.now > 15 * SECOND


def test_a_retry_after_of_a_thousand_years_does_not_overflow() -> None:
    play = one(Repeat.SAFE)
    assert play.fail("work", "not_sent", retry_after=timedelta(days=999_999_999)).answer == "changed"


def test_attempts_used_up_without_doubt_fail_with_the_last_code() -> None:
    play = one(Repeat.SAFE)
    for _ in range(2):
        play.fail("work", "not_sent", "REFUSED")
        play.retry("work")
    play.fail("work", "not_sent", "REFUSED")
    assert (play.state("work"), play.step("work").code) == (StepState.FAILED, "REFUSED")
    assert (play.run.state, play.run.code, play.run.cause) == (RunState.FAILED, "REFUSED", "REFUSED")
    assert "step.attempts_used_up" in play.events


def test_no_try_starts_later_than_within_after_the_first() -> None:
    saga = new_saga()
    add_step(saga, "work", retry=Retry(attempts=99, first=10 * SECOND, within=25 * SECOND))
    play = Play(flow(saga))
    play.fail("work", "not_sent")
    play.retry("work")
    play.now += 20 * SECOND
    play.fail("work", "not_sent")  # 25 s after the first try have passed, whatever the pause
    assert play.state("work") is StepState.FAILED


def use_up(play: Play, verdict: Verdict = "unknown", code: str = "TIMEOUT") -> None:
    for _ in range(2):
        play.fail("work", verdict, code)
        play.retry("work")
    play.fail("work", verdict, code)


def test_safe_in_doubt_with_a_probe_is_asked_when_tries_are_used_up() -> None:
    saga = new_saga()
    add_step(saga, "work", probe=True, undo=True)
    add_step(saga, "after")
    play = Play(flow(saga))
    use_up(play)
    assert (play.state("work"), play.run.state) == (StepState.UNKNOWN, RunState.RUNNING)
    play.probe("work", ProbeFound({"id": "x"}))
    assert (play.state("work"), play.state("after")) == (StepState.SUCCEEDED, StepState.PENDING)


def test_safe_in_doubt_with_an_undo_stops_the_run_and_settles_by_repeating() -> None:
    play = one(Repeat.SAFE, undo=True)
    use_up(play)
    assert (play.run.state, play.run.cause, play.state("work")) == (
        RunState.COMPENSATING,
        "TIMEOUT",
        StepState.UNKNOWN,
    )
    assert play.last.work == (Work("work", "work", "default"),)
    play.probe("work", ProbeFound({"id": "x"}))
    assert (play.state("work"), play.state("undo_work")) == (
        StepState.SUCCEEDED,
        StepState.COMPENSATION_PENDING,
    )
    play.succeed("undo_work")
    assert play.run.state is RunState.COMPENSATED


def test_safe_in_doubt_whose_settling_repeat_is_refused_is_not_undone() -> None:
    play = one(Repeat.SAFE, undo=True)
    use_up(play)
    play.probe("work", ProbeFailed("DECLINED"))
    assert (play.state("work"), play.run.state, play.run.code) == (
        StepState.FAILED,
        RunState.FAILED,
        "TIMEOUT",
    )
    assert play.run.step("undo_work") is None


def test_safe_in_doubt_that_stays_unsettled_goes_to_a_person() -> None:
    play = one(Repeat.SAFE, undo=True)
    use_up(play)
    play.probe("work", ProbeError("TIMEOUT", ""))
    play.now += HOUR
    play.probe("work", ProbeError("TIMEOUT", ""))
    assert (play.state("work"), play.run.state, play.run.code) == (
        StepState.MANUAL_REQUIRED,
        RunState.MANUAL_REQUIRED,
        "OUTCOME_UNKNOWN",
    )
    assert play.last.settled[0].decision == "ESCALATE"


def test_safe_in_doubt_with_a_blind_undo_is_undone_without_asking() -> None:
    saga = new_saga()
    add_step(saga, "work", blind=True, retry=RETRY)
    play = Play(flow(saga))
    use_up(play)
    step = play.step("work")
    assert (step.state, step.doubt, step.result) == (StepState.FAILED, True, None)
    assert play.state("undo_work") is StepState.COMPENSATION_PENDING


def test_safe_in_doubt_that_is_irreversible_is_settled_and_goes_forward() -> None:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    add_step(saga, "work", irreversible=True, retry=RETRY)
    add_step(saga, "after", on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.succeed("first")
    use_up(play)
    assert (play.state("work"), play.run.state) == (StepState.UNKNOWN, RunState.RUNNING)
    play.probe("work", ProbeFound({"id": "x"}))
    assert play.state("after") is StepState.PENDING


def test_safe_in_doubt_without_any_undo_fails_and_stays_in_doubt() -> None:
    play = one(Repeat.SAFE)
    use_up(play)
    step = play.step("work")
    assert (step.state, step.doubt, play.run.state) == (StepState.FAILED, True, RunState.FAILED)


def test_a_definite_no_clears_the_doubt_of_earlier_tries() -> None:
    play = one(Repeat.SAFE, undo=True)
    play.fail("work", "unknown")
    play.retry("work")
    play.fail("work", "fatal", "DECLINED")
    assert (play.step("work").doubt, play.run.state) == (False, RunState.FAILED)


def test_not_sent_does_not_clear_the_doubt_of_an_earlier_try() -> None:
    play = one(Repeat.SAFE)
    play.fail("work", "unknown")
    play.retry("work")
    play.fail("work", "not_sent")
    assert play.step("work").doubt


def test_on_failure_person_holds_the_run_with_the_code() -> None:
    play = one(Repeat.SAFE, on_failure=Then.PERSON)
    play.fail("work", "fatal", "CLOSED")
    assert (play.state("work"), play.run.state, play.run.code) == (
        StepState.MANUAL_REQUIRED,
        RunState.MANUAL_REQUIRED,
        "CLOSED",
    )
    assert play.step("work").wake_at == play.run.wake_at == play.now + LIMITS.reminder


def test_a_person_is_reminded_daily_for_ever() -> None:
    play = one(Repeat.NEVER)
    play.fail("work", "unknown")
    for _ in range(40):
        play.wake("work")
        play.wake()
    assert play.events.count("step.reminder") == 40
    assert play.run.state is RunState.MANUAL_REQUIRED


def test_never_in_doubt_leaves_both_history_rows_in_one_decision() -> None:
    play = one(Repeat.NEVER)
    decision = play.fail("work", "unknown", "TIMEOUT")
    assert [entry.event for entry in decision.history] == [
        "step.failed",
        "step.unknown",
        "step.manual_required",
    ]
    assert play.step("work").code == "OUTCOME_UNKNOWN"
