"""What a run in each state does when its deadline has passed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from milepost.sagas.facts import Act, ProbeAbsent, Probed, ProbeFound, Succeeded, TryFailed
from milepost.sagas.model import CloseWait
from milepost.schemas.options import Repeat, Then
from milepost.schemas.states import RunState, StepState

from tests.support.limits import DUE, ended, playing, saga_of, time_is_over, waiting_run
from tests.support.sagas import LIMITS, MINUTE, NOW, Play, add_step, flow, new_saga


def test_a_deadline_that_has_passed_at_the_start_begins_nothing() -> None:
    play = playing(saga_of(Repeat.SAFE), NOW)
    assert ended(play)
    assert (play.run.steps, play.last.work) == ((), ())
    assert play.events == ["run.started", "run.expired"]


def test_pending_expires_and_nothing_was_done() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    time_is_over(play)
    assert play.state("first") is StepState.CANCELLED
    assert ended(play)


def test_what_is_running_may_finish_and_is_undone_with_all_before_it() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    held = play.claim("second")
    time_is_over(play)
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATING, "DEADLINE")
    assert (play.state("second"), play.last.work) == (StepState.RUNNING, ())
    play.send(Succeeded("second", held.fence, {"id": "late"}))
    assert play.step("second").result == {"id": "late"}
    assert play.run.step("third") is None
    assert ended(play, "second", "first")


def test_a_try_that_fails_after_the_deadline_is_not_made_again() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.claim("second")
    time_is_over(play)
    play.lose("second")
    assert play.state("second") is StepState.UNKNOWN, "it may have happened, and its undo has to know"
    play.send(Succeeded("second", 1, {"id": "too late"}))
    assert play.state("second") is StepState.UNKNOWN
    step = play.claim("second")
    assert (step.state, step.attempt) == (StepState.RECONCILING, 1)
    play.send(Probed("second", step.fence, ProbeFound({"id": "x"})))
    assert ended(play, "second", "first")


def test_a_definite_no_after_the_deadline_leaves_nothing_of_its_own_to_undo() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, on_failure=Then.COMPENSATE))
    play.succeed("first")
    held = play.claim("second")
    time_is_over(play)
    play.send(TryFailed("second", held.fence, "fatal", "NO", "said so"))
    assert play.state("second") is StepState.FAILED
    assert ended(play, "first")


def test_a_retry_that_nobody_has_begun_is_cancelled() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.fail("second", "not_sent")
    time_is_over(play)
    assert play.state("second") is StepState.CANCELLED
    assert ended(play, "first")


@pytest.mark.parametrize("undo", ["plain", "blind", "none"])
def test_a_retry_in_doubt_is_settled_before_anything_is_undone(undo: str) -> None:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    none = "nothing to undo" if undo == "none" else None
    add_step(saga, "second", undo=undo == "plain", blind=undo == "blind", no_undo=none)
    add_step(saga, "third")
    play = playing(flow(saga))
    play.succeed("first")
    play.fail("second", "unknown")
    time_is_over(play)
    if undo == "plain":
        assert (play.state("second"), play.run.state) == (StepState.UNKNOWN, RunState.COMPENSATING)
        play.probe("second", ProbeFound({"id": "x"}))
        assert ended(play, "second", "first")
        return
    assert (play.state("second"), play.step("second").doubt) == (StepState.FAILED, True)
    assert ended(play, *(["second"] if undo == "blind" else []), "first")


@pytest.mark.parametrize("there", [True, False])
def test_an_unknown_outcome_is_settled_first(there: bool) -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.ASK_FIRST, settle=timedelta(0)))
    play.succeed("first")
    play.fail("second", "unknown")
    time_is_over(play)
    assert (play.state("second"), play.run.state) == (StepState.UNKNOWN, RunState.COMPENSATING)
    assert play.run.step("undo_first") is None
    play.probe("second", ProbeFound({"id": "x"}) if there else ProbeAbsent())
    assert play.state("second") is (StepState.SUCCEEDED if there else StepState.FAILED)
    assert ended(play, *(["second"] if there else []), "first")


def test_a_wait_is_closed_and_what_came_before_it_is_undone() -> None:
    play = waiting_run()
    time_is_over(play)
    assert play.last.closes == (CloseWait("delivered", 1),)
    assert play.state("delivered") is StepState.CANCELLED
    assert ended(play, "ship")


def test_a_wait_whose_probe_is_asked_is_closed_too_and_the_answer_is_late() -> None:
    play = waiting_run(Then.RECONCILE, timeout=30 * MINUTE)
    play.wake("delivered")
    asked = play.claim("delivered")
    time_is_over(play)
    assert play.state("delivered") is StepState.CANCELLED
    assert play.send(Probed("delivered", asked.fence, ProbeFound({"id": "x"}))).answer == "ignored"
    assert ended(play, "ship")


def test_an_event_that_is_there_already_is_not_lost() -> None:
    play = waiting_run()
    play.present("delivered")
    time_is_over(play)
    row = play.step("delivered")
    assert (row.state, row.result, play.last.closes) == (StepState.SUCCEEDED, {"id": "o-1"}, ())
    assert play.run.step("close") is None
    assert ended(play, "ship")


def test_an_event_that_comes_first_after_the_deadline_is_taken_and_nothing_follows_it() -> None:
    play = waiting_run()
    play.now = DUE
    play.signal("delivered")
    assert play.state("delivered") is StepState.SUCCEEDED
    assert play.run.step("close") is None
    assert ended(play, "ship")


def test_a_run_that_is_being_undone_already_ends_as_it_would_have() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.fail("second")
    time_is_over(play)
    play.succeed("undo_first")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATED, "NO")


def test_a_code_of_a_step_that_is_called_like_the_limit_is_none() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.fail("second", code="DEADLINE")
    play.succeed("undo_first")
    assert play.run.state is RunState.COMPENSATED


def test_a_run_in_front_of_a_person_expires() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE, on_failure=Then.PERSON))
    play.succeed("first")
    play.fail("second")
    assert (play.run.state, play.run.wake_at) == (RunState.MANUAL_REQUIRED, DUE)
    time_is_over(play)
    assert play.state("second") is StepState.CANCELLED
    assert ended(play, "first")


@pytest.mark.parametrize("blind", [True, False])
def test_a_person_who_is_asked_what_happened_is_asked_still(blind: bool) -> None:
    saga = new_saga()
    add_step(saga, "first", undo=True)
    add_step(saga, "second", Repeat.NEVER, undo=not blind, blind=blind)
    play = playing(flow(saga))
    play.succeed("first")
    play.fail("second", "unknown")
    time_is_over(play)
    if blind:
        assert ended(play, "second", "first")
        return
    assert (play.run.state, play.run.cause) == (RunState.MANUAL_REQUIRED, "DEADLINE")
    assert play.run.wake_at == DUE + LIMITS.reminder
    assert play.events[-1] == "run.expiring"
    time_is_over(play)
    assert play.last.history == (), "it is acted on once"


def test_a_failed_undo_never_expires() -> None:
    play = playing(saga_of(Repeat.SAFE, Repeat.SAFE))
    play.succeed("first")
    play.fail("second")
    play.fail("undo_first")
    assert play.run.state is RunState.COMPENSATION_FAILED
    time_is_over(play)
    assert (play.run.state, play.last.history) == (RunState.COMPENSATION_FAILED, ())


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED"])
def test_a_final_run_stays_as_it_is(end: str) -> None:
    play = playing(saga_of(Repeat.SAFE, undo=False))
    if end == "SUCCEEDED":
        play.succeed("first")
    else:
        play.fail("first")
    assert (play.run.state, play.run.wake_at) == (end, None)
    time_is_over(play)
    assert (play.last.answer, play.events[-1], play.run.state) == ("ignored", "timer.stale", end)


def asked() -> Play:
    """Return a run that expired while a person was asked what became of its one step."""
    saga = new_saga()
    add_step(saga, "only", Repeat.NEVER, undo=True)
    play = playing(flow(saga))
    play.fail("only", "unknown")
    time_is_over(play)
    assert (play.run.state, play.run.cause) == (RunState.MANUAL_REQUIRED, "DEADLINE")
    return play


@pytest.mark.parametrize("happened", [True, False])
def test_what_the_person_answers_later_ends_the_run_as_expired(happened: bool) -> None:
    play = asked()
    if happened:
        play.send(Act("mark_succeeded", "ann", "it is there", step="only", result={"id": "x"}))
        assert ended(play, "only")
    else:
        play.send(Act("compensate", "ann", "it is not there", did_not_happen=True))
        assert ended(play)
