"""What a run does that waits for a lock, decided without a database: nothing, until it is its turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.sagas.decide import decide
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Act, Claim, Fact, Signalled, Start, Succeeded, Wake
from milepost.sagas.locking import queued
from milepost.sagas.model import Decision, Run
from milepost.sagas.saga import Saga
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import Then
from milepost.schemas.states import RunState

from tests.support.sagas import (
    HOUR,
    LIMITS,
    NOW,
    OTHER,
    Delivered,
    Order,
    Play,
    add_step,
    check_decision,
    flow,
    new_run,
    new_saga,
)


def two_steps(**options: Any) -> Definition:
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id, **options)
    add_step(saga, "one", undo=True)
    add_step(saga, "two", no_undo="the last")
    return flow(saga)


def waits_first() -> Definition:
    saga = new_saga()
    saga.wait("paid", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.CANCEL)
    return flow(saga)


def locked(definition: Definition, **values: Any) -> Run:
    return replace(new_run(definition), resource="stock:tea", **values)


def decided(definition: Definition, run: Run, fact: Fact, ahead: timedelta = timedelta(0)) -> Decision:
    decision = decide(definition, run, fact, NOW + ahead, dice=0.5, limits=LIMITS)
    check_decision(run, decision)
    return decision


def events(decision: Decision) -> list[str]:
    return [entry.event for entry in decision.history]


@pytest.mark.parametrize("definition", [two_steps(), waits_first()])
def test_one_that_has_its_lock_begins_at_once(definition: Definition) -> None:
    plain = decided(definition, new_run(definition), Start())
    decision = decided(definition, locked(definition, holds=True), Start())
    assert replace(decision, run=plain.run) == plain
    assert decision.lock is None and len(decision.run.steps) == 1


@pytest.mark.parametrize("definition", [two_steps(), waits_first()])
def test_one_that_has_not_stands_in_the_queue_until_it_has(definition: Definition) -> None:
    decision = decided(definition, locked(definition), Start())
    assert (decision.lock, decision.run.state, decision.run.steps) == ("enter", RunState.PENDING, ())
    assert not (decision.work or decision.opens)
    assert events(decision) == ["run.started", "run.queued"]
    assert decision.run.wake_at == NOW + LIMITS.nudge
    waiting = replace(decision.run, queued_since=NOW)
    for fact in (Start(), Claim("one", OTHER), Succeeded("one", 1), Signalled("paid", 1, {"id": "o-1"})):
        assert decided(definition, waiting, fact).answer != "changed", fact
    granted = decided(definition, replace(waiting, holds=True, queued_since=None), Wake(None, 0))
    assert (granted.lock, len(granted.run.steps), len(granted.work) + len(granted.opens)) == (None, 1, 1)
    assert events(granted)[0] == "run.lock_granted"
    again = decided(definition, replace(granted.run, holds=True), Wake(None, 0))
    assert events(again) == [] and again.run.steps == granted.run.steps


@pytest.mark.parametrize(("waited", "pause"), [(0, 10), (10, 10), (60, 60), (3600, 600)])
def test_it_looks_less_and_less_often(waited: int, pause: int) -> None:
    definition = two_steps()
    run = locked(definition, queued_since=NOW)
    decision = decided(definition, run, Wake(None, 0), timedelta(seconds=waited))
    assert decision.lock == "ask" and events(decision) == []
    assert decision.run.wake_at == NOW + timedelta(seconds=waited + pause)


def test_every_end_leaves_and_no_other_change_does() -> None:
    definition = two_steps()
    for ending in ("SUCCEEDED", "FAILED", "COMPENSATED", "COMPENSATION_FAILED"):
        play = Play(definition)
        play.run = replace(play.run, resource="stock:tea", holds=True)
        kept = [play.succeed("one")] if ending != "FAILED" else []
        if ending == "FAILED":
            last = play.fail("one")
        elif ending == "SUCCEEDED":
            last = play.succeed("two")
        else:
            kept.append(play.fail("two"))
            last = play.succeed("undo_one") if ending == "COMPENSATED" else play.fail("undo_one")
        assert last.run.state.value == ending
        assert last.lock == (None if ending == "COMPENSATION_FAILED" else "leave")
        assert {decision.lock for decision in kept} <= {None}


def test_without_a_lock_nothing_is_given_back() -> None:
    play = Play(two_steps())
    play.succeed("one")
    assert play.succeed("two").lock is None


def test_a_deadline_ends_the_waiting_and_the_time_in_the_queue_is_not_active() -> None:
    definition = two_steps(deadline=lambda o: NOW + HOUR, active_timeout=timedelta(minutes=5))
    run = locked(definition, deadline_at=NOW + HOUR, active_since=NOW)
    waiting = replace(decided(definition, run, Start()).run, queued_since=NOW)
    assert waiting.active_since is None
    look = decided(definition, waiting, Wake(None, 0), timedelta(minutes=55))
    assert look.lock == "ask" and look.run.wake_at == NOW + HOUR, (
        "its deadline comes sooner than the next look"
    )
    late = decided(definition, waiting, Wake(None, 0), HOUR)
    assert (late.run.state, late.lock) == (RunState.EXPIRED, "leave")
    granted = decided(definition, replace(look.run, holds=True), Wake(None, 0), timedelta(minutes=56))
    assert granted.run.active_since == NOW + timedelta(minutes=56)
    assert granted.run.active_for == timedelta(0)


@pytest.mark.parametrize("undo", [True, False])
def test_a_person_cancels_what_stands_in_the_queue(undo: bool) -> None:
    definition = two_steps()
    waiting = replace(decided(definition, locked(definition), Start()).run, queued_since=NOW)
    ended = decided(definition, waiting, Act("cancel", by="ann", reason="sold out", undo=undo))
    assert (ended.run.state, ended.run.steps, ended.lock) == (RunState.CANCELLED, (), "leave")


def test_nobody_lets_it_go_on_before_its_turn() -> None:
    definition = two_steps()
    waiting = replace(decided(definition, locked(definition), Start()).run, queued_since=NOW)
    assert decided(definition, waiting, Act("resume", by="ann", reason="now")).answer == "refused"


FACTS = st.sampled_from(
    [Start(), Wake(None, 0), Claim("one", OTHER), Succeeded("one", 1), Act("resume", by="a", reason="b")]
)


@given(st.lists(st.tuples(FACTS, st.integers(0, 4000)), max_size=8))
def test_whatever_comes_no_step_begins_before_its_turn(facts: list[tuple[Fact, int]]) -> None:
    definition = two_steps()
    run = replace(decided(definition, locked(definition), Start()).run, queued_since=NOW)
    for fact, seconds in facts:
        decision = decided(definition, run, fact, timedelta(seconds=seconds))
        run = decision.run
        assert queued(run) and not decision.work
        assert decision.lock == ("ask" if decision.answer == "changed" else None)
        assert run.wake_at is not None


def test_the_shape_never_and_the_policy_only_with_a_lock_changes() -> None:
    plain, queue = two_steps(), two_steps(lock=lambda o: o.id)
    reject = two_steps(lock=lambda o: o.id, if_locked="reject")
    assert plain.shape == queue.shape == reject.shape
    assert len({plain.policy, queue.policy, reject.policy}) == 3
    # Of a saga without a lock, as it was before there were locks.
    assert plain.policy == "a985f48a1af10d77c4b85e0fb553b98127eba56c288a08182571ea5cece50937"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lock": lambda o: o.id, "if_locked": "wait"}, "if_locked='wait' is neither 'queue' nor 'reject'"),
        ({"if_locked": "reject"}, "if_locked='reject' without lock= locks nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=f"MP113 order v1: {words}"):
        two_steps(**options)
