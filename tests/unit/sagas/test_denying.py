"""Tool, quality and policy failures differ: another try, the end of the step, the end of the run."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas.facts import TryFailed
from milepost.sagas.saga import Saga
from milepost.sagas.shapes import all_of, best_effort, optional
from milepost.schemas.options import OnFailure, Repeat, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import Order, Play, add_step, flow, new_saga

REPEATS = (Repeat.SAFE, Repeat.ASK_FIRST, Repeat.NEVER)


def two(repeat: Repeat = Repeat.SAFE, on_failure: OnFailure = Then.COMPENSATE) -> Play:
    """A saga in whose second step something fails."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_step(
        saga,
        "work",
        repeat,
        probe=repeat is Repeat.ASK_FIRST,
        on_failure=on_failure,
        no_undo="nothing to undo",
    )
    play = Play(flow(saga))
    play.succeed("before")
    return play


@pytest.mark.parametrize("repeat", REPEATS)
def test_a_tool_failure_is_tried_again(repeat: Repeat) -> None:
    play = two(repeat)
    play.fail("work", "not_sent", "CONNECT_FAILED")
    assert (play.state("work"), play.run.state) == (StepState.RETRY_PENDING, RunState.RUNNING)


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize(
    ("on_failure", "run", "step"),
    [
        (Then.COMPENSATE, RunState.COMPENSATING, StepState.FAILED),
        (Then.FAIL, RunState.FAILED, StepState.FAILED),
        (Then.PERSON, RunState.MANUAL_REQUIRED, StepState.MANUAL_REQUIRED),
    ],
)
def test_a_quality_failure_ends_the_step(
    repeat: Repeat, on_failure: OnFailure, run: RunState, step: StepState
) -> None:
    play = two(repeat, on_failure)
    decision = play.fail("work", "quality", "TOO_SHORT")
    assert (play.state("work"), play.run.state, play.step("work").code) == (step, run, "TOO_SHORT")
    (told,) = [entry.data for entry in decision.history if entry.event == "step.failed"]
    assert (told["verdict"], told["code"]) == ("quality", "TOO_SHORT")


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("on_failure", [Then.COMPENSATE, Then.FAIL, Then.PERSON])
def test_what_a_policy_denies_stops_the_run_and_asks_nobody(repeat: Repeat, on_failure: OnFailure) -> None:
    play = two(repeat, on_failure)
    play.fail("work", "policy", "FORBIDDEN")
    assert (play.state("work"), play.run.cause) == (StepState.FAILED, "FORBIDDEN")
    if on_failure is Then.COMPENSATE:
        play.succeed("undo_before")
        assert play.run.state is RunState.COMPENSATED
    else:
        assert (play.run.state, play.run.code) == (RunState.FAILED, "FORBIDDEN")
        assert play.run.step("undo_before") is None
    assert play.run.cause == "FORBIDDEN"


@pytest.mark.parametrize("verdict", ["quality", "policy"])
@pytest.mark.parametrize("undo", [True, False])
def test_what_an_earlier_try_may_have_done_is_settled_first(verdict: Any, undo: bool) -> None:
    saga = new_saga()
    add_step(saga, "work", undo=undo, no_undo=None if undo else "nothing", probe=True)
    play = Play(flow(saga))
    play.fail("work", "unknown")
    play.retry("work")
    play.fail("work", verdict, "NO")
    assert (play.state("work"), play.step("work").doubt) == (StepState.UNKNOWN, True)
    if verdict == "policy":
        assert (play.run.state, play.run.cause) == (RunState.COMPENSATING, "NO")


def around(shape: Any, verdict: Any) -> Play:
    """A part in which one branch fails, with another beside it and a step behind it."""
    saga: Saga[Order] = new_saga()
    first = add_step(saga, "first", undo=True)
    work = add_step(saga, "work", no_undo="nothing")
    beside = add_step(saga, "beside", undo=True)
    last = add_step(saga, "last", undo=True)
    saga.flow(first, all_of(shape(work), beside), last)
    play = Play(saga.definition)
    play.succeed("first")
    play.claim("beside")
    play.fail("work", verdict, "NO")
    return play


@pytest.mark.parametrize("shape", [optional, best_effort])
def test_a_part_that_tolerates_failures_tolerates_no_denial(shape: Any) -> None:
    play = around(shape, "quality")
    assert (play.run.state, play.run.cause) == (RunState.RUNNING, None)
    play = around(shape, "policy")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATING, "NO")
    assert play.state("beside") is StepState.RUNNING, "what is under way may finish"
    play.send(TryFailed("beside", play.step("beside").fence, "fatal", "LATE", ""))
    play.succeed("undo_first")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATED, "NO")
    assert play.run.step("last") is None


@pytest.mark.parametrize("verdict", ["quality", "policy"])
def test_in_an_undo_each_ends_the_tries(verdict: Any) -> None:
    play = two()
    play.fail("work", "fatal")
    play.fail("undo_before", verdict, "NO")
    assert (play.state("undo_before"), play.run.state) == (
        StepState.COMPENSATION_FAILED,
        RunState.COMPENSATION_FAILED,
    )
