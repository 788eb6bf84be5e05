"""Going forward: start, claim, finish, inline continuation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

from milepost.sagas.facts import Claim, Start, Succeeded, TryFailed, Wake
from milepost.sagas.model import Work
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.sagas import LIMITS, NOW, OTHER, WORKER, Play, add_step, add_tx, flow, new_saga


def two_steps() -> Play:
    saga = new_saga()
    add_step(saga, "reserve")
    add_tx(saga, "close")
    return Play(flow(saga))


def test_start_announces_the_first_step() -> None:
    play = two_steps()
    step = play.step("reserve")
    assert (step.state, step.wake_at, step.generation) == (StepState.PENDING, NOW + LIMITS.nudge, 1)
    assert play.last.work == (Work("reserve", "work", "default"),)
    assert play.run.state is RunState.PENDING
    assert play.events == ["run.started"]


def test_a_second_start_is_ignored() -> None:
    play = two_steps()
    assert play.send(Start()).answer == "ignored"


def test_a_claim_raises_fence_and_attempt_and_sets_the_hard_timeout() -> None:
    play = two_steps()
    step = play.claim("reserve")
    assert (step.state, step.attempt, step.fence, step.worker) == (StepState.RUNNING, 1, 1, WORKER)
    assert step.wake_at == NOW + timedelta(seconds=30) + LIMITS.slack
    assert play.run.state is RunState.RUNNING


def test_a_second_worker_gets_nothing() -> None:
    play = two_steps()
    play.claim("reserve")
    decision = play.send(Claim("reserve", OTHER))
    assert (decision.answer, decision.claimed) == ("refused", None)
    assert play.step("reserve").worker == WORKER


def test_a_result_goes_on_to_the_next_step_and_after_the_last_the_run_has_succeeded() -> None:
    play = two_steps()
    play.succeed("reserve")
    assert play.step("reserve").finish_no == 1
    assert (play.state("close"), play.step("close").kind) == (StepState.PENDING, StepKind.TX)
    play.succeed("close")
    assert (play.run.state, play.run.wake_at, play.run.finish_n) == (RunState.SUCCEEDED, None, 2)
    assert play.events == [
        "run.started",
        "step.started",
        "step.completed",
        "step.started",
        "step.completed",
        "run.completed",
    ]


def test_a_result_told_twice_changes_nothing_and_leaves_no_trace() -> None:
    play = two_steps()
    fence = play.claim("reserve").fence
    play.send(Succeeded("reserve", fence, {"id": "x"}))
    again = play.send(Succeeded("reserve", fence, {"id": "x"}))
    assert (again.answer, again.history) == ("ignored", ())


def test_a_zombies_late_result_is_evidence_and_nothing_more() -> None:
    play = two_steps()
    zombie = play.claim("reserve").fence
    play.lose("reserve")
    play.claim("reserve", OTHER)
    late = play.send(Succeeded("reserve", zombie, {"id": "late"}))
    assert late.answer == "ignored"
    assert late.history[0].event == "step.late_result"
    assert late.history[0].data["sha256"] == sha256(b'{"id":"late"}').hexdigest()
    assert "result" not in late.history[0].data, "results are not in the history"
    assert play.state("reserve") is StepState.RUNNING


def test_a_zombies_late_failure_is_evidence_too() -> None:
    play = two_steps()
    zombie = play.claim("reserve").fence
    play.lose("reserve")
    late = play.send(TryFailed("reserve", zombie, "fatal", "NO", "late"))
    assert (late.answer, late.history[0].data["code"]) == ("ignored", "NO")
    assert play.state("reserve") is StepState.PENDING


def test_inline_continuation_folds_the_claim_into_the_finish() -> None:
    play = two_steps()
    folded = play.then_claim(play.succeed("reserve"))
    assert folded.work == ()
    assert folded.claimed is not None
    assert folded.claimed.state is StepState.RUNNING
    assert {row.name for row in folded.changed} == {"reserve", "close"}


def test_inline_continuation_leaves_other_queues_alone() -> None:
    play = two_steps()
    decision = play.succeed("reserve")
    assert play.then_claim(decision, queue="slow") is decision


def test_inline_continuation_never_claims_an_undo() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "charge")
    play = Play(flow(saga))
    play.succeed("reserve")
    decision = play.fail("charge")
    assert decision.work[0].lane == "compensation"
    assert play.then_claim(decision) is decision


def test_inline_steps_leave_the_runs_wake_at_alone() -> None:
    play = two_steps()
    before = play.run.wake_at
    play.now += timedelta(minutes=5)
    play.succeed("reserve")
    assert play.run.wake_at == before


def test_unclaimed_work_is_announced_again_at_doubling_intervals() -> None:
    play = two_steps()
    pauses = []
    for _ in range(8):
        play.wake("reserve")
        wake_at = play.step("reserve").wake_at
        assert wake_at is not None
        assert play.last.work == (Work("reserve", "work", "default"),)
        pauses.append((wake_at - play.now).total_seconds())
    assert pauses == [20, 40, 80, 160, 320, 600, 600, 600]


def test_a_timer_of_an_older_generation_is_a_recorded_no_op() -> None:
    play = two_steps()
    old = play.step("reserve").generation
    play.claim("reserve")
    decision = play.send(Wake("reserve", old))
    assert (decision.answer, decision.history[0].event) == ("ignored", "timer.stale")


def test_work_handed_back_does_not_count_as_a_try() -> None:
    play = two_steps()
    play.claim("reserve")
    decision = play.hand_back("reserve")
    step = play.step("reserve")
    assert (step.state, step.attempt, step.first_at) == (StepState.PENDING, 0, None)
    assert decision.work
    assert play.claim("reserve").attempt == 1


def test_a_step_that_does_not_exist_is_refused() -> None:
    play = two_steps()
    assert play.send(Claim("nobody", WORKER)).answer == "refused"
    assert play.send(Claim("close", WORKER)).answer == "refused"  # its row does not exist yet


def test_the_run_healed_goes_on_where_the_rows_say() -> None:
    play = two_steps()
    play.succeed("reserve")
    play.run = replace(play.run, steps=play.run.steps[:1])  # as if the next row had never been written
    decision = play.wake()
    assert play.state("close") is StepState.PENDING
    assert decision.history[0].event == "run.healed"


def test_a_silent_run_is_looked_at_and_stays_awake() -> None:
    play = two_steps()
    play.wake()
    assert play.run.wake_at == play.now + LIMITS.sweep
    assert play.last.work == ()


def test_waking_a_finished_run_is_a_recorded_no_op() -> None:
    play = two_steps()
    play.succeed("reserve")
    play.succeed("close")
    decision = play.send(Wake(None, 0))
    assert (decision.answer, decision.history[0].event) == ("ignored", "timer.stale")
