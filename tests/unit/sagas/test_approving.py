"""Approvals: who counts, what they are bound to, what follows from yes, no and silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from milepost.sagas import questions
from milepost.sagas.facts import Act, Claim, Succeeded, Wake
from milepost.sagas.model import Decision, Work
from milepost.sagas.questions import Question
from milepost.sagas.shapes import all_of, loop, when
from milepost.schemas.options import OnTimeout, Retry, Then
from milepost.schemas.states import Risk, RunState, StepState
from pydantic import BaseModel

from tests.support.allsagas import add_approval
from tests.support.sagas import HOUR, LIMITS, OTHER, Delivered, Play, add_step, flow, new_saga

BOSS = frozenset({"boss"})


class Amount(BaseModel):
    of: str


def question(play: Play, name: str) -> Question:
    found = questions.read(play.step(name))
    assert found is not None
    return found


def say(play: Play, what: Any, name: str, by: str, **more: Any) -> Decision:
    """Say yes or no to what stands there now."""
    asked = question(play, name)
    seen = {"generation": asked.generation, "hash": asked.hash, "roles": BOSS}
    return play.send(Act(what, by, f"{by} says so", name, **{**seen, **more}))


def ended(play: Play) -> RunState:
    return play.run.state


def asked(**options: Any) -> Play:
    """A run that waits for an approval between two steps."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_approval(saga, "ok", **options)
    add_step(saga, "after", retry=Retry(attempts=1), on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.succeed("before")
    return play


def refunds(risk: Risk = Risk.HIGH, *, detached: bool = False) -> Play:
    """A run that undoes three steps, the last of which has a risky undo."""
    saga = new_saga()
    for name in ("one", "two"):
        add_step(saga, name, undo=True)
    add_step(saga, "three", undo=True, risk=risk, detached=detached, undo_retry=Retry(attempts=1))
    add_step(saga, "four", retry=Retry(attempts=1))
    play = Play(flow(saga))
    for name in ("one", "two", "three"):
        play.succeed(name)
    play.fail("four")
    return play


# --- yes ------------------------------------------------------------------------------------------------


def test_an_approval_waits_without_a_worker_and_lets_the_flow_go_on() -> None:
    play = asked()
    assert (play.run.state, play.state("ok")) == (RunState.WAITING, StepState.WAITING)
    assert play.last.work == ()
    decision = say(play, "approve", "ok", "ann")
    assert decision.work == (Work("after", "work", "default"),)
    result = play.step("ok").result
    assert (result["approved"], result["by"], result["reason"]) == (True, ["ann"], "ann says so")
    assert [(one.by, one.approved, one.generation) for one in decision.said] == [("ann", True, 1)]
    play.succeed("after")
    assert play.run.state is RunState.SUCCEEDED


def test_a_quorum_is_of_different_persons() -> None:
    play = asked(quorum=2)
    say(play, "approve", "ok", "ann")
    assert (play.run.state, len(question(play, "ok").given)) == (RunState.WAITING, 1)
    for again in ("ann", "Ann", " ANN "):
        refused = say(play, "approve", "ok", again)
        assert (refused.answer, "counts once" in refused.reason) == ("refused", True)
    say(play, "approve", "ok", "bob")
    assert play.step("ok").result["by"] == ["ann", "bob"]


def test_critical_needs_two_and_none_who_asked() -> None:
    play = asked(risk=Risk.CRITICAL)
    assert question(play, "ok").needed == 2
    refused = say(play, "approve", "ok", "ann", asker="Ann")
    assert "two others have to approve" in refused.reason
    say(play, "approve", "ok", "bob", asker="ann")
    say(play, "approve", "ok", "cid", asker="ann")
    assert play.state("ok") is StepState.SUCCEEDED


def test_a_role_is_needed() -> None:
    play = asked()
    refused = say(play, "approve", "ok", "ann", roles=frozenset({"clerk"}))
    assert refused.reason == "ok needs one of the roles boss; ann acts with clerk"
    assert say(play, "reject", "ok", "ann", roles=frozenset()).answer == "refused"


def test_what_was_not_seen_is_not_approved() -> None:
    play = asked()
    for wrong in ({"generation": 0}, {"hash": "00"}, {"generation": None}, {"hash": None}):
        refused = say(play, "approve", "ok", "ann", **wrong)
        assert (refused.answer, "Look again" in refused.reason) == ("refused", True)
    assert play.state("ok") is StepState.WAITING


def test_nothing_goes_past_an_approval() -> None:
    play = asked()
    for what in ("retry", "skip", "mark_succeeded"):
        assert play.send(Act(what, "ann", "because", "ok", result={"approved": True})).answer == "refused"
    play.wake("ok")
    assert play.step("ok").code == "APPROVAL_EXPIRED"
    for what in ("skip", "mark_succeeded"):
        assert "only approving" in play.send(Act(what, "ann", "because", "ok")).reason  # type: ignore[arg-type]
    assert "waits for no approval" in say(play, "approve", "ok", "ann").reason


# --- no, and silence ------------------------------------------------------------------------------------


def test_one_rejection_is_enough() -> None:
    play = asked(quorum=2)
    say(play, "approve", "ok", "ann")
    say(play, "reject", "ok", "bob")
    assert (play.state("ok"), play.step("ok").code) == (StepState.FAILED, "APPROVAL_REJECTED")
    play.succeed("undo_before")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATED, "APPROVAL_REJECTED")


def test_a_rejection_may_fail_the_run_or_only_be_told() -> None:
    play = asked(on_reject=Then.FAIL)
    say(play, "reject", "ok", "bob")
    assert (play.run.state, play.run.code) == (RunState.FAILED, "APPROVAL_REJECTED")
    play = asked(on_reject=Then.CONTINUE)
    say(play, "reject", "ok", "bob")
    assert (play.step("ok").result["approved"], play.state("after")) == (False, StepState.PENDING)


@pytest.mark.parametrize(
    ("policy", "run", "step"),
    [
        (Then.PERSON, RunState.MANUAL_REQUIRED, StepState.MANUAL_REQUIRED),
        (Then.CANCEL, RunState.CANCELLED, StepState.CANCELLED),
        (Then.COMPENSATE, RunState.COMPENSATING, StepState.FAILED),
        (Then.CONTINUE, RunState.RUNNING, StepState.SKIPPED),
        (Then.RETRY, RunState.WAITING, StepState.WAITING),
    ],
)
def test_silence_has_a_policy(policy: OnTimeout, run: RunState, step: StepState) -> None:
    play = asked(on_expiry=policy, quorum=2)
    say(play, "approve", "ok", "ann")
    play.wake("ok")
    assert (play.run.state, play.state("ok")) == (run, step)
    if policy is Then.RETRY:  # asked once more, of everybody, and then a person
        assert (question(play, "ok").generation, question(play, "ok").given) == (2, ())
        play.wake("ok")
        assert play.state("ok") is StepState.MANUAL_REQUIRED


def test_what_has_expired_is_asked_anew() -> None:
    play = asked()
    play.wake("ok")
    play.send(Act("retry", "ann", "they are back", "ok"))
    assert (play.state("ok"), question(play, "ok").generation) == (StepState.WAITING, 2)
    say(play, "approve", "ok", "bob")
    assert play.state("ok") is StepState.SUCCEEDED


def test_the_failed_rejected_branch_stops_what_runs_beside() -> None:
    saga = new_saga()
    one, ok = add_step(saga, "one", undo=True), add_approval(saga, "ok")
    wait = saga.wait("w", Delivered, match=lambda v: "k", timeout=HOUR, on_timeout=Then.PERSON)
    saga.flow(all_of(one, ok, wait))
    play = Play(saga.definition)
    play.succeed("one")
    assert play.run.state is RunState.WAITING
    decision = say(play, "reject", "ok", "ann")
    assert [closed.step for closed in decision.closes] == ["w"]
    assert play.state("undo_one") is StepState.COMPENSATION_PENDING


# --- bound to parameters --------------------------------------------------------------------------------


def changed(play: Play) -> None:
    """The run's input is another one than when it was asked, as after a migration to another version."""
    play.run = replace(play.run, input={"id": "o-2"})


@pytest.mark.parametrize("params", [None, lambda view: Amount(of=view.input.id)])
def test_changed_parameters_void_what_was_said_and_ask_anew(params: Any) -> None:
    play = asked(quorum=2, params=params)
    first = question(play, "ok")
    say(play, "approve", "ok", "ann")
    changed(play)
    decision = say(play, "approve", "ok", "bob")
    assert (decision.answer, "void" in decision.reason, decision.said) == ("changed", True, ())
    again = question(play, "ok")
    assert (again.generation, again.given, again.hash != first.hash) == (2, (), True)
    assert "approval.voided" in play.events
    stale = say(play, "approve", "ok", "ann", generation=1, hash=first.hash)
    assert "generation 2 is asked for now" in stale.reason
    say(play, "approve", "ok", "ann")
    say(play, "approve", "ok", "bob")
    assert play.state("ok") is StepState.SUCCEEDED


def test_what_follows_an_approval_does_not_begin_when_it_is_about_something_else_by_then() -> None:
    play = asked(on_reject=Then.COMPENSATE)
    say(play, "approve", "ok", "ann")
    changed(play)
    assert play.send(Claim("after", OTHER)).claimed is None
    assert (play.state("after"), play.step("after").code) == (StepState.MANUAL_REQUIRED, "APPROVAL_VOID")
    assert question(play, "after").generation == 2
    assert "waits for approval" in play.send(Act("retry", "ann", "go on", "after")).reason
    say(play, "approve", "after", "bob")
    play.succeed("after")
    assert play.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("then", "run"),
    [
        (Then.COMPENSATE, RunState.COMPENSATING),
        (Then.FAIL, RunState.FAILED),
        (Then.CONTINUE, RunState.SUCCEEDED),
    ],
)
def test_a_void_approval_may_be_rejected(then: Any, run: RunState) -> None:
    play = asked(on_reject=then)
    say(play, "approve", "ok", "ann")
    changed(play)
    play.send(Claim("after", OTHER))
    say(play, "reject", "after", "bob")
    assert play.run.state is run


def test_a_try_that_has_begun_is_not_held_back_any_more() -> None:
    play = asked()
    say(play, "approve", "ok", "ann")
    play.claim("after")
    changed(play)
    play.lose("after")  # it may have taken effect: to be settled, not to be asked about
    assert play.step("after").code != "APPROVAL_VOID"


def test_an_approval_guards_the_ways_that_may_follow_it() -> None:
    saga = new_saga()
    ok, far = add_approval(saga, "ok"), add_step(saga, "far")
    yes, no, beside = (add_step(saga, name) for name in ("yes", "no", "beside"))
    saga.flow(ok, when(lambda v: True, all_of(yes, beside), otherwise=[no]), far)
    assert saga.definition.approved_by == dict.fromkeys(("yes", "beside", "no"), ("ok",))


def test_parameters_that_cannot_be_told_go_to_a_person() -> None:
    def broken(view: Any) -> Any:
        raise KeyError("x")

    play = asked(params=broken)
    assert (play.state("ok"), play.step("ok").code) == (StepState.MANUAL_REQUIRED, "PARAMS_FAILED")
    assert "cannot be asked for" in play.send(Act("retry", "ann", "again", "ok")).reason
    large = asked(params=lambda view: Amount(of="x" * 9000))
    assert "8192 are kept at most" in (large.step("ok").message or "")


# --- undo -----------------------------------------------------------------------------------------------


def test_a_risky_undo_waits_for_approval_and_holds_back_the_others() -> None:
    play = refunds()
    row = play.step("undo_three")
    assert (row.state, row.code, play.run.state) == (
        StepState.MANUAL_REQUIRED,
        "APPROVAL_REQUIRED",
        RunState.MANUAL_REQUIRED,
    )
    assert play.last.work == () and play.run.step("undo_two") is None
    assert play.send(Claim("undo_three", OTHER)).claimed is None
    play.now += 30 * LIMITS.reminder
    play.send(Wake("undo_three", row.generation))
    decision = say(play, "approve", "undo_three", "ann", roles=frozenset())
    assert decision.work == (Work("undo_three", "compensation", "default"),)
    assert play.run.state is RunState.COMPENSATING
    for name in ("undo_three", "undo_two", "undo_one"):
        play.succeed(name)
    assert ended(play) is RunState.COMPENSATED


def test_a_critical_undo_needs_two_persons() -> None:
    play = refunds(Risk.CRITICAL)
    say(play, "approve", "undo_three", "ann")
    assert play.run.state is RunState.MANUAL_REQUIRED
    say(play, "approve", "undo_three", "bob")
    assert play.state("undo_three") is StepState.COMPENSATION_PENDING


def test_a_rejected_undo_is_not_lost() -> None:
    play = refunds()
    say(play, "reject", "undo_three", "ann")
    assert (play.run.state, play.run.code) == (RunState.COMPENSATION_FAILED, "APPROVAL_REJECTED")
    assert "incident.candidate" in play.events and play.run.step("undo_two") is None
    play.send(Act("retry", "bob", "the customer insists", "undo_three"))
    assert (play.run.state, question(play, "undo_three").generation) == (RunState.MANUAL_REQUIRED, 2)
    assert play.step("undo_three").code == "APPROVAL_REQUIRED", "nothing of what it is about has changed"
    say(play, "approve", "undo_three", "bob")
    play.succeed("undo_three")
    assert play.state("undo_two") is StepState.COMPENSATION_PENDING


def test_a_failed_undo_is_tried_again_under_the_approval_that_it_has() -> None:
    play = refunds()
    say(play, "approve", "undo_three", "ann")
    play.fail("undo_three", "fatal")
    assert play.run.state is RunState.COMPENSATION_FAILED
    play.send(Act("retry", "bob", "the bank is back", "undo_three"))
    assert play.state("undo_three") is StepState.COMPENSATION_PENDING


def test_an_undo_by_hand_or_left_out_is_a_named_act() -> None:
    play = refunds()
    play.send(Act("mark_succeeded", "ann", "paid in cash", "undo_three"))
    assert play.state("undo_three") is StepState.COMPENSATED
    play = refunds()
    play.send(Act("skip", "ann", "waived", "undo_three"))
    assert (play.state("undo_three"), play.state("undo_two")) == (
        StepState.CANCELLED,
        StepState.COMPENSATION_PENDING,
    )
    assert play.send(Act("compensate", "ann", "again")).answer == "refused"


def test_a_detached_undo_holds_back_no_other_but_the_end() -> None:
    play = refunds(detached=True)
    assert play.state("undo_two") is StepState.COMPENSATION_PENDING
    assert play.run.state is RunState.MANUAL_REQUIRED
    play.succeed("undo_two")
    play.succeed("undo_one")
    assert play.run.state is RunState.MANUAL_REQUIRED
    say(play, "approve", "undo_three", "ann")
    play.succeed("undo_three")
    assert ended(play) is RunState.COMPENSATED


def test_a_detached_undo_that_failed_holds_back_no_other_either() -> None:
    play = refunds(Risk.LOW, detached=True)
    play.fail("undo_three", "fatal")
    assert (play.run.state, play.state("undo_two")) == (
        RunState.COMPENSATION_FAILED,
        StepState.COMPENSATION_PENDING,
    )
    play.succeed("undo_two")
    play.succeed("undo_one")
    play.send(Act("retry", "ann", "the bank is back", "undo_three"))
    assert play.run.state is RunState.COMPENSATING
    play.succeed("undo_three")
    assert ended(play) is RunState.COMPENSATED


def test_undo_parameters_that_changed_void_its_approval() -> None:
    play = refunds()
    say(play, "approve", "undo_three", "ann")
    changed(play)
    assert play.send(Claim("undo_three", OTHER)).claimed is None
    assert (play.run.state, play.step("undo_three").code) == (RunState.MANUAL_REQUIRED, "APPROVAL_VOID")
    say(play, "approve", "undo_three", "ann")
    play.succeed("undo_three")
    assert play.state("undo_two") is StepState.COMPENSATION_PENDING


def test_undos_of_branches_and_rounds_wait_each_for_its_own_approval() -> None:
    """A refund for each round, and a branch beside: every question is bound to its round."""
    saga = new_saga()
    pay = add_step(saga, "pay", undo=True, risk=Risk.HIGH, detached=True)
    beside = add_step(saga, "beside", undo=True)
    last = add_step(saga, "last", retry=Retry(attempts=1))
    rounds = iter((False, True))
    saga.flow(all_of(loop(pay, until=lambda v: next(rounds), at_most=2), beside), last)
    play = Play(saga.definition)
    for turn in ("1", "2"):
        claimed = play.send(Claim("pay", OTHER, turn)).claimed
        assert claimed is not None
        play.send(Succeeded("pay", claimed.fence, {"id": turn}, turn))
    play.succeed("beside")
    play.fail("last")
    assert play.run.step("undo_pay", "2") is None, "what ended last is undone first"
    play.succeed("undo_beside")
    waiting = [row for row in play.run.steps if row.name == "undo_pay"]
    assert [(row.iteration, row.state) for row in waiting] == [
        ("2", StepState.MANUAL_REQUIRED),
        ("1", StepState.MANUAL_REQUIRED),
    ]
    assert ended(play) is RunState.MANUAL_REQUIRED
    for row in waiting:
        asked_about = questions.read(row)
        assert asked_about is not None
        seen: dict[str, Any] = {"generation": 1, "hash": asked_about.hash, "iteration": row.iteration}
        play.send(Act("approve", "ann", "yes", "undo_pay", **seen))
        claimed = play.send(Claim("undo_pay", OTHER, row.iteration)).claimed
        assert claimed is not None
        play.send(Succeeded("undo_pay", claimed.fence, None, row.iteration))
    assert ended(play) is RunState.COMPENSATED
