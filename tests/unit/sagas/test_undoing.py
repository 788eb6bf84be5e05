"""Undo: exactly what may have happened, in reverse order of completion, one at a time, seen when it fails."""

from __future__ import annotations

import pytest
from milepost.sagas.facts import Claim, ProbeFound, TryFailed, Verdict
from milepost.sagas.model import Work
from milepost.schemas.options import Repeat, Retry, Then
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.sagas import LIMITS, OTHER, SECOND, WORKER, Play, add_step, flow, new_saga

NAMES = ["one", "two", "three", "four", "five"]


def five(repeat: Repeat = Repeat.SAFE) -> Play:
    saga = new_saga()
    for name in NAMES:
        add_step(
            saga, name, repeat, undo=True, probe=repeat is Repeat.ASK_FIRST, undo_retry=Retry(attempts=3)
        )
    return Play(flow(saga))


def undo_all(play: Play) -> list[str]:
    undone = []
    while play.run.state is RunState.COMPENSATING:
        pending = [step for step in play.run.steps if step.state is StepState.COMPENSATION_PENDING]
        assert len(pending) == 1, "undos run one at a time"
        undone.append(pending[0].undo_of or "")
        play.succeed(pending[0].name)
    return undone


@pytest.mark.parametrize("failing", range(5))
@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_failure_undoes_what_was_done_in_reverse(failing: int, retries: int) -> None:
    """Fail at each step, on the first try and after retries (scenario 38, for sequences)."""
    play = five()
    for name in NAMES[:failing]:
        play.succeed(name)
    for _ in range(retries):
        play.fail(NAMES[failing], "not_sent")
        play.retry(NAMES[failing])
    play.fail(NAMES[failing], "fatal", "NO")
    assert undo_all(play) == NAMES[:failing][::-1]
    assert play.run.state is (RunState.COMPENSATED if failing else RunState.FAILED)
    assert play.run.cause == "NO"


@pytest.mark.parametrize("failing", range(5))
def test_a_step_in_doubt_is_settled_first_and_then_undone_first(failing: int) -> None:
    """The failing step had already taken effect (scenario 39)."""
    play = five()
    for name in NAMES[:failing]:
        play.succeed(name)
    for _ in range(2):
        play.fail(NAMES[failing], "unknown")
        play.retry(NAMES[failing])
    play.fail(NAMES[failing], "unknown")
    assert play.state(NAMES[failing]) is StepState.UNKNOWN
    assert not [step for step in play.run.steps if step.kind is StepKind.UNDO], "no undo before it is settled"
    play.probe(NAMES[failing], ProbeFound({"id": "x"}))
    assert undo_all(play) == NAMES[: failing + 1][::-1]
    assert play.run.state is RunState.COMPENSATED


def test_a_late_success_does_not_restart_a_run_that_is_stopping() -> None:
    play = five()
    play.succeed("one")
    zombie = play.claim("two").fence
    play.lose("two")
    play.fail("two", "fatal")
    from milepost.sagas.facts import Succeeded

    late = play.send(Succeeded("two", zombie, {"id": "late"}))
    assert late.answer == "ignored"
    assert play.run.state is RunState.COMPENSATING
    assert undo_all(play) == ["one"]


def test_an_undo_is_a_row_and_a_job_of_its_own() -> None:
    play = five()
    play.succeed("one")
    decision = play.fail("two")
    row = play.step("undo_one")
    assert (row.kind, row.undo_of, row.state) == (StepKind.UNDO, "one", StepState.COMPENSATION_PENDING)
    assert decision.work == (Work("undo_one", "compensation", "default"),)
    claimed = play.claim("undo_one")
    assert (claimed.attempt, claimed.fence, claimed.worker) == (1, 1, WORKER)
    assert play.send(Claim("undo_one", OTHER)).claimed is None


def test_a_failing_undo_is_tried_again_by_its_timer() -> None:
    play = five()
    play.succeed("one")
    play.fail("two")
    decision = play.fail("undo_one", "unknown", retry_after=20 * SECOND)
    assert decision.work == ()
    assert play.step("undo_one").wake_at == play.now + 20 * SECOND
    play.wake("undo_one")
    assert play.last.work == (Work("undo_one", "compensation", "default"),)
    assert undo_all(play) == ["one"]


@pytest.mark.parametrize("verdict", ["retry", "unknown", "not_sent"])
def test_an_undo_whose_tries_are_used_up_stops_the_rest_and_is_seen(verdict: Verdict) -> None:
    play = five()
    for name in NAMES[:3]:
        play.succeed(name)
    play.fail("four")
    for _ in range(2):
        play.fail("undo_three", verdict)
        play.wake("undo_three")
    play.fail("undo_three", verdict, "BANK_DOWN")
    assert (play.state("undo_three"), play.run.state, play.run.code) == (
        StepState.COMPENSATION_FAILED,
        RunState.COMPENSATION_FAILED,
        "BANK_DOWN",
    )
    assert "incident.candidate" in play.events
    assert play.run.step("undo_two") is None, "what comes after a failed undo stays"
    assert play.run.wake_at == play.now + LIMITS.reminder


def test_a_fatal_undo_is_not_tried_again() -> None:
    play = five()
    play.succeed("one")
    play.fail("two")
    play.fail("undo_one", "fatal")
    assert play.run.state is RunState.COMPENSATION_FAILED
    play.wake("undo_one")
    assert play.last.history[0].event == "step.reminder"


def test_a_lost_compensator_costs_a_try_and_is_fenced() -> None:
    play = five()
    play.succeed("one")
    play.fail("two")
    zombie = play.claim("undo_one").fence
    play.lose("undo_one")
    assert play.state("undo_one") is StepState.COMPENSATION_PENDING
    assert play.last.work
    assert play.send(TryFailed("undo_one", zombie, "fatal", "LATE", "")).answer == "ignored"
    for _ in range(2):
        play.claim("undo_one")
        play.lose("undo_one")
    assert play.run.state is RunState.COMPENSATION_FAILED


def test_an_undo_handed_back_does_not_count_as_a_try() -> None:
    play = five()
    play.succeed("one")
    play.fail("two")
    play.claim("undo_one")
    play.hand_back("undo_one")
    assert (play.state("undo_one"), play.step("undo_one").attempt) == (StepState.COMPENSATION_PENDING, 0)
    assert play.last.work


def test_a_stuck_compensator_meets_the_hard_timeout() -> None:
    play = five()
    play.succeed("one")
    play.fail("two")
    play.claim("undo_one")
    play.wake("undo_one")
    assert (play.state("undo_one"), play.step("undo_one").code) == (
        StepState.COMPENSATION_PENDING,
        "HARD_TIMEOUT",
    )


def test_steps_that_need_no_undo_are_passed_over() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", no_undo="nothing left the house")
    add_step(saga, "three")
    play = Play(flow(saga))
    play.succeed("one")
    play.succeed("two")
    play.fail("three")
    assert undo_all(play) == ["one"]


def test_a_blind_undo_runs_before_the_others() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", blind=True, retry=Retry(attempts=1))
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("two", "unknown")
    assert undo_all(play) == ["two", "one"]


def test_a_blind_undo_does_not_run_for_a_definite_no() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", blind=True)
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("two", "fatal")
    assert undo_all(play) == ["one"]


def test_on_failure_fail_undoes_nothing() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", on_failure=Then.FAIL)
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("two", "fatal", "NO")
    assert (play.run.state, play.run.code) == (RunState.FAILED, "NO")


def test_the_run_tells_once_that_it_turned_round_and_once_that_it_is_done() -> None:
    play = five()
    play.succeed("one")
    play.succeed("two")
    play.fail("three")
    undo_all(play)
    assert play.events.count("run.compensating") == 1
    assert play.events.count("compensation.started") == 2
    assert play.events.count("compensation.completed") == 2
    assert play.events[-1] == "run.compensated"
