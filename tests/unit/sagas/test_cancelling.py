"""Cancel at safe boundaries, with undo and without, in every live state; and who wins against what else ends a run."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas.cancelling import done
from milepost.sagas.facts import Act, ProbeAbsent, ProbeFound, Succeeded, TryFailed
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then
from milepost.schemas.states import FINAL_STEP_STATES, RunState, StepState

from tests.support.sagas import HOUR, Delivered, Play, add_step, add_tx, flow, new_saga


def cancel(undo: bool, **more: Any) -> Act:
    return Act("cancel", "ann", "the customer changed her mind", undo=undo, **more)


def begun(repeat: Repeat = Repeat.SAFE, *, undo: bool = True, then: Any = Then.COMPENSATE) -> Play:
    """A run of one step done and one announced."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    no_undo = None if undo else "nothing to undo"
    add_step(
        saga, "it", repeat, undo=undo, probe=repeat is Repeat.ASK_FIRST, on_failure=then, no_undo=no_undo
    )
    add_step(saga, "after")
    play = Play(flow(saga))
    play.succeed("before")
    return play


def undone(play: Play, *names: str) -> None:
    """Let exactly these undos run, in this order, to the end."""
    for name in names:
        assert play.run.state is RunState.COMPENSATING
        play.succeed(f"undo_{name}")
    assert play.run.state is RunState.COMPENSATED
    assert play.run.cause == "CANCELLED"


@pytest.mark.parametrize("undo", [False, True])
def test_what_nobody_has_begun_is_cancelled_at_once(undo: bool) -> None:
    play = begun()
    decision = play.send(cancel(undo))
    assert play.state("it") is StepState.CANCELLED
    told = decision.history[0]
    assert (told.event, told.data["by"], told.data["done"]) == ("act.cancel", "ann", ["before"])
    if undo:
        undone(play, "before")
    else:
        assert (play.run.state, play.run.cause) == (RunState.CANCELLED, "CANCELLED")
        assert all(step.state in FINAL_STEP_STATES for step in play.run.steps)
    assert done(play.run) == ("before",)


@pytest.mark.parametrize("undo", [False, True])
def test_what_runs_may_finish_and_its_outcome_counts(undo: bool) -> None:
    play = begun()
    fence = play.claim("it").fence
    play.send(cancel(undo))
    assert (play.run.state, play.state("it")) == (RunState.CANCEL_REQUESTED, StepState.RUNNING)
    play.send(Succeeded("it", fence, {"id": "it"}))
    assert play.state("it") is StepState.SUCCEEDED
    assert play.run.step("after") is None
    if undo:
        undone(play, "it", "before")
    else:
        assert play.run.state is RunState.CANCELLED


@pytest.mark.parametrize("undo", [False, True])
def test_what_runs_and_fails_is_not_tried_again_nor_given_to_a_person(undo: bool) -> None:
    play = begun(then=Then.PERSON)
    fence = play.claim("it").fence
    play.send(cancel(undo))
    play.send(TryFailed("it", fence, "not_sent", "BUSY", "later"))
    assert play.state("it") is StepState.FAILED
    if undo:
        undone(play, "before")
    else:
        assert play.run.state is RunState.CANCELLED


def test_a_doubtful_try_is_settled_before_it_is_undone() -> None:
    play = begun(Repeat.ASK_FIRST)
    fence = play.claim("it").fence
    play.send(cancel(undo=True))
    play.send(TryFailed("it", fence, "unknown", "LOST", "no answer"))
    assert (play.run.state, play.state("it")) == (RunState.CANCEL_REQUESTED, StepState.UNKNOWN)
    play.probe("it", ProbeFound({"id": "it"}))
    undone(play, "it", "before")


def test_absent_is_not_tried_again_once_cancelled() -> None:
    play = begun(Repeat.ASK_FIRST)
    play.fail("it", "unknown")
    play.send(cancel(undo=True))
    assert (play.run.state, play.state("it")) == (RunState.CANCEL_REQUESTED, StepState.UNKNOWN)
    play.now += HOUR / 2
    play.probe("it", ProbeAbsent())
    assert play.state("it") is StepState.FAILED
    undone(play, "before")


def test_without_undo_no_call_is_repeated_only_to_learn_what_became_of_it() -> None:
    play = begun(Repeat.SAFE)
    play.fail("it", "retry")
    assert (play.state("it"), play.step("it").doubt) == (StepState.RETRY_PENDING, True)
    play.send(cancel(undo=False))
    assert (play.run.state, play.state("it"), play.step("it").doubt) == (
        RunState.CANCELLED,
        StepState.FAILED,
        True,
    )


def test_with_undo_it_is() -> None:
    play = begun(Repeat.SAFE)
    play.fail("it", "retry")
    play.send(cancel(undo=True))
    assert (play.run.state, play.state("it")) == (RunState.CANCEL_REQUESTED, StepState.UNKNOWN)
    play.probe("it", ProbeFound({"id": "it"}))
    undone(play, "it", "before")


@pytest.mark.parametrize("undo", [False, True])
def test_nobody_can_settle_never_but_a_person(undo: bool) -> None:
    play = begun(Repeat.NEVER)
    fence = play.claim("it").fence
    play.send(cancel(undo))
    play.send(TryFailed("it", fence, "unknown", "LOST", "no answer"))
    assert (play.run.state, play.state("it")) == (RunState.MANUAL_REQUIRED, StepState.MANUAL_REQUIRED)
    play.send(Act("mark_succeeded", "ann", "it is there", "it", {"id": "it"}))
    if undo:
        undone(play, "it", "before")
    else:
        assert play.run.state is RunState.CANCELLED


@pytest.mark.parametrize("asked", [False, True])
def test_a_wait_is_closed(asked: bool) -> None:
    saga = new_saga()
    add_step(saga, "before", undo=True)
    wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.RECONCILE)

    @wait.probe
    async def ask(ctx: Any) -> Probe[Delivered]:
        return Found(Delivered(id="x"))

    play = Play(flow(saga))
    play.succeed("before")
    if asked:
        play.wake("it")
        play.claim("it")
    generation = play.step("it").generation
    decision = play.send(cancel(undo=True))
    assert [(closed.step, closed.generation) for closed in decision.closes] == [("it", generation)]
    assert play.state("it") is StepState.CANCELLED
    assert play.signal("it").answer == "ignored"
    undone(play, "before")


def test_an_event_that_was_there_first_is_not_lost() -> None:
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    play.present("it")
    decision = play.send(cancel(undo=False))
    assert not decision.closes
    assert (play.state("it"), play.run.state) == (StepState.SUCCEEDED, RunState.CANCELLED)


def test_a_run_in_front_of_a_person_is_cancelled_directly() -> None:
    play = begun(Repeat.NEVER)
    play.fail("it", "unknown")
    play.send(cancel(undo=False))
    assert (play.run.state, play.state("it"), play.step("it").doubt) == (
        RunState.CANCELLED,
        StepState.FAILED,
        True,
    )


def test_with_undo_what_may_have_happened_has_to_be_known() -> None:
    play = begun(Repeat.NEVER)
    play.fail("it", "unknown")
    assert "mark it as succeeded first" in play.send(cancel(undo=True)).reason
    play.send(cancel(undo=True, did_not_happen=True))
    assert play.state("it") is StepState.CANCELLED
    undone(play, "before")


def test_with_nothing_to_undo_it_is_cancelled_all_the_same() -> None:
    saga = new_saga()
    add_tx(saga, "it")
    play = Play(flow(saga))
    play.send(cancel(undo=True))
    assert play.run.state is RunState.CANCELLED


def test_undo_that_is_under_way_is_never_cancelled() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True, undo_retry=Retry(attempts=1))
    add_step(saga, "two")
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("two")
    for undo in (False, True):
        assert "an undo is never cancelled" in play.send(cancel(undo)).reason
    play.fail("undo_one")
    assert play.run.state is RunState.COMPENSATION_FAILED
    assert play.send(cancel(undo=False)).answer == "refused"


def test_who_comes_second_is_told_who_was_first() -> None:
    play = begun()
    play.claim("it")
    play.send(cancel(undo=False))
    again = play.send(cancel(undo=False))
    assert (again.answer, again.reason) == (
        "ignored",
        "this has been asked for already; under way: it RUNNING",
    )
    other = play.send(cancel(undo=True))
    assert other.answer == "refused"
    assert other.reason.startswith("somebody was faster: the run is being cancelled without undo")
    play.send(Succeeded("it", play.step("it").fence, {"id": "it"}))
    assert play.send(cancel(undo=True)).reason == "the run is CANCELLED already"

    won = begun()
    won.succeed("it")
    won.succeed("after")
    late = won.send(cancel(undo=True))
    assert (late.answer, late.reason) == ("refused", "the run was faster: it has ended as SUCCEEDED")


def test_a_stopping_worker_hands_back_what_is_then_cancelled() -> None:
    play = begun()
    play.claim("it")
    play.send(cancel(undo=False))
    play.hand_back("it")
    assert (play.state("it"), play.run.state) == (StepState.CANCELLED, RunState.CANCELLED)


def test_a_lost_worker_does_not_hold_a_cancelled_run() -> None:
    play = begun(undo=False)
    play.claim("it")
    play.send(cancel(undo=True))
    play.lose("it")
    assert (play.state("it"), play.step("it").doubt) == (StepState.FAILED, True)
    undone(play, "before")
