"""What a person may decide: retry, skip, mark as succeeded, compensate, resume; and what is refused, with words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from milepost.sagas.facts import Act, ActName, ProbeAbsent, ProbeError, ProbeFailed, Succeeded
from milepost.sagas.model import Decision
from milepost.schemas.options import OnFailure, Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, Delivered, Play, add_step, flow, new_saga


def say(what: ActName, step: str | None = None, **more: Any) -> Act:
    return Act(what, "ann", "she looked", step, **more)


def held(repeat: Repeat = Repeat.SAFE, *, blind: bool = False, doubt: bool = False) -> Play:
    """A run whose second step stands in front of a person."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    then: OnFailure = Then.COMPENSATE if doubt else Then.PERSON
    add_step(
        saga, "it", repeat, undo=not blind, blind=blind, probe=repeat is Repeat.ASK_FIRST, on_failure=then
    )
    add_step(saga, "after")
    play = Play(flow(saga))
    play.succeed("before")
    if doubt:
        play.fail("it", "unknown", "LOST")
        while (
            play.run.state is not RunState.MANUAL_REQUIRED
        ):  # ASK_FIRST is asked for as long as give_up says
            play.now += 2 * HOUR
            play.probe("it", ProbeAbsent())
    else:
        play.fail("it", "fatal", "NO")
    assert play.run.state is RunState.MANUAL_REQUIRED
    assert play.step("it").doubt is doubt
    return play


def undo_failed() -> Play:
    """A run of two steps done, one failed, whose first undo has failed."""
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", undo=True)
    add_step(saga, "last")
    play = Play(flow(saga))
    play.succeed("one")
    play.succeed("two")
    play.fail("last")
    play.fail("undo_two", "fatal", "NO")
    assert play.run.state is RunState.COMPENSATION_FAILED
    return play


def entry(decision: Decision, event: str) -> dict[str, Any]:
    return dict(next(e.data for e in decision.history if e.event == event))


# --- retry ----------------------------------------------------------------------------------------------


def test_retry_gives_fresh_tries_under_a_higher_fence() -> None:
    play = held()
    before = play.step("it")
    decision = play.send(say("retry", "it"))
    assert entry(decision, "act.retry") == {"by": "ann", "reason": "she looked"}
    assert [work.step for work in decision.work] == ["it"]
    assert (play.run.state, play.run.code, play.state("it")) == (RunState.RUNNING, None, StepState.PENDING)
    again = play.claim("it")
    assert (again.attempt, again.fence) == (1, before.fence + 1)
    for _ in range(2):
        play.send(Succeeded("it", before.fence, {"id": "late"}))  # an old fence stays out
        assert play.state("it") is StepState.RUNNING
    play.send(Succeeded("it", again.fence, {"id": "it"}))
    play.succeed("after")
    assert play.run.state is RunState.SUCCEEDED


def test_what_may_have_happened_is_not_retried_unless_the_person_says_that_it_did_not() -> None:
    play = held(Repeat.NEVER, doubt=True)
    refused = play.send(say("retry", "it"))
    assert refused.answer == "refused"
    assert "may have taken effect" in refused.reason
    decision = play.send(say("retry", "it", did_not_happen=True))
    assert entry(decision, "act.retry")["did_not_happen"] is True
    assert (play.state("it"), play.step("it").doubt) == (StepState.PENDING, False)


def test_a_wait_is_armed_anew_under_a_new_generation() -> None:
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    play.wake("it")
    old = play.step("it").generation
    decision = play.send(say("retry", "it"))
    assert [(opened.step, opened.generation) for opened in decision.opens] == [("it", old + 1)]
    assert (play.run.state, play.state("it")) == (RunState.WAITING, StepState.WAITING)
    assert play.signal("it").answer == "changed"
    assert play.run.state is RunState.SUCCEEDED


def test_an_event_that_could_not_be_read_is_taken_once_it_can_be() -> None:
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    play.signal("it", {"wrong": 1})
    assert play.step("it").code == "SIGNAL_INVALID"
    play.present("it")
    play.send(say("retry", "it"))
    assert play.run.state is RunState.SUCCEEDED


def test_a_wait_that_still_cannot_be_matched_is_refused() -> None:
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: "", timeout=HOUR, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    assert "match returned ''" in play.send(say("retry", "it")).reason


def test_a_failed_undo_is_tried_again() -> None:
    play = undo_failed()
    play.send(say("retry", "undo_two"))
    assert (play.run.state, play.state("undo_two")) == (RunState.COMPENSATING, StepState.COMPENSATION_PENDING)
    assert play.claim("undo_two").attempt == 1
    play.send(Succeeded("undo_two", play.step("undo_two").fence))
    play.succeed("undo_one")
    assert play.run.state is RunState.COMPENSATED


# --- skip and mark as succeeded -------------------------------------------------------------------------


def test_skip_goes_on_without_a_result() -> None:
    play = held()
    play.send(say("skip", "it"))
    assert (play.state("it"), play.step("it").result) == (StepState.SKIPPED, None)
    play.succeed("after")
    assert play.run.state is RunState.SUCCEEDED


def test_a_skipped_undo_lets_the_next_one_begin() -> None:
    play = undo_failed()
    play.send(say("skip", "undo_two"))
    assert (play.state("undo_two"), play.state("undo_one")) == (
        StepState.CANCELLED,
        StepState.COMPENSATION_PENDING,
    )
    play.succeed("undo_one")
    assert play.run.state is RunState.COMPENSATED


def test_a_result_is_held_to_the_declared_class() -> None:
    play = held()
    for wrong in (None, {"identity": "x"}, [1]):
        refused = play.send(say("mark_succeeded", "it", result=wrong))
        assert (refused.answer, refused.reason.startswith("the result is no Done: ")) == ("refused", True)
    secret = play.send(say("mark_succeeded", "it", result={"id": ["4111 1111"]})).reason
    assert "4111" not in secret
    play.send(say("mark_succeeded", "it", result={"id": "by hand", "more": 1}))
    assert (play.state("it"), play.step("it").result) == (StepState.SUCCEEDED, {"id": "by hand"})
    assert not play.step("it").doubt
    assert play.state("after") is StepState.PENDING


def test_an_undo_done_by_hand_counts() -> None:
    play = undo_failed()
    assert play.send(say("mark_succeeded", "undo_two", result={"id": "x"})).answer == "refused"
    play.send(say("mark_succeeded", "undo_two"))
    assert play.state("undo_two") is StepState.COMPENSATED
    play.succeed("undo_one")
    assert play.run.state is RunState.COMPENSATED


# --- compensate -----------------------------------------------------------------------------------------


def test_compensate_undoes_what_was_done_as_after_a_failure() -> None:
    play = held()
    decision = play.send(say("compensate"))
    assert entry(decision, "act.compensate")["done"] == ["before"]
    assert (play.run.state, play.run.cause, play.state("it")) == (
        RunState.COMPENSATING,
        "NO",
        StepState.FAILED,
    )
    play.succeed("undo_before")
    assert play.run.state is RunState.COMPENSATED


def test_compensate_wants_to_know_first_what_it_could_not_undo() -> None:
    play = held(Repeat.NEVER, doubt=True)
    refused = play.send(say("compensate"))
    assert refused.answer == "refused"
    assert "mark it as succeeded first" in refused.reason
    play.send(say("compensate", did_not_happen=True))
    assert (play.run.state, play.step("it").doubt) == (RunState.COMPENSATING, False)
    assert play.run.step("undo_it") is None


def test_a_blind_undo_runs_without_knowing() -> None:
    play = held(Repeat.NEVER, blind=True, doubt=True)
    play.send(say("compensate"))
    assert play.state("undo_it") is StepState.COMPENSATION_PENDING
    play.succeed("undo_it")
    play.succeed("undo_before")
    assert play.run.state is RunState.COMPENSATED


def test_compensate_with_nothing_to_undo_fails_the_run() -> None:
    saga = new_saga()
    add_step(saga, "it", on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.fail("it")
    play.send(say("compensate"))
    assert play.run.state is RunState.FAILED


# --- a run that had been stopping -----------------------------------------------------------------------


def stopping_in_doubt() -> Play:
    """A run that stops, and whose last step nobody can settle but a person."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_step(saga, "it", undo=True, retry=Retry(attempts=1))
    play = Play(flow(saga))
    play.succeed("before")
    play.fail("it", "unknown", "LOST")
    assert play.run.state is RunState.COMPENSATING
    while play.run.state is RunState.COMPENSATING:
        play.now += 100 * HOUR
        play.probe("it", ProbeError("X", "no answer"))
    assert (play.run.state, play.run.cause) == (RunState.MANUAL_REQUIRED, "LOST")
    return play


def test_done_after_all_it_is_undone_too() -> None:
    play = stopping_in_doubt()
    play.send(say("mark_succeeded", "it", result={"id": "x"}))
    assert (play.run.state, play.state("it")) == (RunState.COMPENSATING, StepState.SUCCEEDED)
    play.succeed("undo_it")
    play.succeed("undo_before")
    assert play.run.state is RunState.COMPENSATED


def test_retry_of_a_stopping_run_only_asks_again() -> None:
    play = stopping_in_doubt()
    play.send(say("retry", "it"))
    assert (play.run.state, play.state("it")) == (RunState.COMPENSATING, StepState.UNKNOWN)
    play.probe("it", ProbeFailed("NO"))
    play.succeed("undo_before")
    assert play.run.state is RunState.COMPENSATED
    assert play.run.step("undo_it") is None


def test_what_did_not_happen_is_not_undone() -> None:
    play = stopping_in_doubt()
    play.send(say("retry", "it", did_not_happen=True))
    assert play.state("it") is StepState.FAILED
    play.succeed("undo_before")
    assert play.run.state is RunState.COMPENSATED


# --- resume, and what is refused ------------------------------------------------------------------------


def test_resume_says_what_is_in_the_way_and_else_goes_on() -> None:
    play = held()
    assert "it MANUAL_REQUIRED (NO)" in play.send(say("resume")).reason
    play.run = replace(play.run, steps=tuple(row for row in play.run.steps if row.name != "it"))
    assert play.send(say("resume")).answer == "changed"
    assert (play.run.state, play.state("it")) == (RunState.RUNNING, StepState.PENDING)
    assert "it PENDING: the run goes on by itself" in play.send(say("resume")).reason


@pytest.mark.parametrize("what", ["retry", "skip", "mark_succeeded"])
def test_only_what_waits_for_a_person_is_acted_on(what: ActName) -> None:
    play = held()
    assert play.send(say(what, "before")).reason == "before is SUCCEEDED: it does not wait for a person"
    assert play.send(say(what, "nothing")).reason == "the run has no step nothing yet; it has: before, it"
    play.send(say("skip", "it"))
    assert play.send(say(what, "after")).reason == "after is PENDING: it does not wait for a person"
    play.succeed("after")
    assert play.send(say(what, "after")).reason.startswith("the run has ended as SUCCEEDED")
    assert play.events.count("act.skip") == 1


def test_without_a_name_it_is_the_one_that_waits() -> None:
    play = held()
    assert play.send(say("skip")).answer == "changed"
    assert play.send(say("skip")).reason == "say which step; 0 wait for a person"
