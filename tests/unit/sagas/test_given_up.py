"""What random nested flows found: what is given up, what begins although it is needless, and who decides on undo."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas.facts import HandedBack
from milepost.sagas.shapes import all_of, at_least, loop, when
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.branches import Branches, branching
from tests.support.sagas import HOUR, Delivered, add_step, new_saga

ONCE = Retry(attempts=1)


def beside_a_wait(then: Any) -> Branches:
    """A run whose step `pay` runs beside an open wait."""
    saga = new_saga()
    wait = saga.wait("came", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=then)
    if then is Then.RECONCILE:

        @wait.probe
        async def ask(ctx: Any) -> Probe[Delivered]:
            return Found(Delivered(id="x"))

    saga.flow(all_of(add_step(saga, "pay", undo=True, retry=ONCE), wait))
    play = Branches(saga.definition)
    if then is Then.RECONCILE:
        play.wake("came")
        assert play.state("came") is StepState.UNKNOWN
    play.claim("pay")
    return play


@pytest.mark.parametrize("then", [Then.COMPENSATE, Then.RECONCILE])
@pytest.mark.parametrize("how", ["refused", "lost"])
def test_an_event_that_is_there_is_not_lost_when_the_branch_beside_its_wait_fails(
    then: Any, how: str
) -> None:
    play = beside_a_wait(then)
    play.present("came")
    if how == "lost":
        play.lose("pay")
        assert play.state("pay") is StepState.UNKNOWN, "it is undone, so it has to be known"
    else:
        play.end("pay", verdict="fatal")
        assert play.run.state is RunState.FAILED
    assert play.state("came") is StepState.SUCCEEDED


def test_a_branch_that_an_empty_way_makes_needless_never_begins() -> None:
    play = branching(lambda a, b, c: (at_least(1, a, when(lambda v: False, b)), c), "abc")
    assert play.open() == {"c"}
    assert play.run.step("a") is None


@pytest.mark.parametrize("verdict", ["not_sent", "retry"])
def test_a_branch_between_two_tries_is_given_up_when_another_fails(verdict: Any) -> None:
    """Known not to have happened it is CANCELLED; in doubt it is asked about, since it would have to be undone."""
    saga = new_saga()
    again = Retry(attempts=3, within=None)
    pay, pack = (add_step(saga, name, undo=True, retry=again) for name in ("pay", "pack"))
    saga.flow(all_of(pay, pack))
    play = Branches(saga.definition)
    play.fail("pay", verdict)
    assert play.state("pay") is StepState.RETRY_PENDING
    play.fail("pack", "fatal")
    wanted = (StepState.CANCELLED, RunState.FAILED)
    if verdict == "retry":
        wanted = (StepState.UNKNOWN, RunState.COMPENSATING)
    assert (play.state("pay"), play.run.state) == wanted


def test_the_next_round_begins_when_the_last_thing_of_a_poor_one_is_given_up() -> None:
    play = branching(lambda a, b: (loop(all_of(a, b), until=lambda v: True, at_most=2),), "ab")
    for name in "ab":
        play.begin(name, "1")
    play.end("a", "1", verdict="quality")
    play.fact(HandedBack("b", 1, "1"))
    assert {(s.name, s.iteration) for s in play.run.steps if s.state is StepState.PENDING} == {
        ("a", "2"),
        ("b", "2"),
    }


def test_what_is_given_up_does_not_say_what_a_lost_run_does() -> None:
    """`pay` stands in front of a person and is given up; the loop has failed, and its failure asks for undo."""
    saga = new_saga()
    pay = add_step(saga, "pay", Repeat.SAFE, blind=True, retry=ONCE, on_failure=Then.PERSON)
    draft = add_step(saga, "draft", undo=True, retry=ONCE)
    saga.flow(all_of(pay, loop(draft, until=lambda v: False, at_most=1)))
    play = Branches(saga.definition)
    play.claim("pay")
    play.lose("pay")
    assert play.state("pay") is StepState.MANUAL_REQUIRED
    play.begin("draft", "1")
    play.end("draft", "1")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATING, "LOOP_EXHAUSTED")
    assert [play.undo(), play.undo()] == ["undo_pay", "undo_draft"]
    assert play.run.state is RunState.COMPENSATED
