"""Acts, cancel, limits of time and locks where they cross."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from milepost.sagas.facts import Act, Claim, Probed, ProbeError, Start, Wake
from milepost.sagas.model import Decision
from milepost.sagas.saga import Saga
from milepost.schemas.options import Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    WORKER,
    Delivered,
    Order,
    Play,
    add_step,
    flow,
    new_saga,
)

ONCE = Retry(attempts=1, within=None)


def act(play: Play, what: Any, **more: Any) -> Decision:
    """A person's act."""
    return play.send(Act(what, by="ann", reason="r", **more))


def put(play: Play, **values: Any) -> None:
    """Change the run as the database would have it."""
    play.run = replace(play.run, **values)


def saga_of(**options: Any) -> Saga[Order]:
    """A saga with options."""
    return Saga("order", version=1, input=Order, key=lambda order: order.id, **options)


def test_a_cancel_with_undo_is_not_lost_to_a_later_one_without() -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", Repeat.NEVER, no_undo="x")
    play = Play(flow(saga))
    play.succeed("one")
    play.claim("two")
    act(play, "cancel", undo=True)
    play.lose("two")
    assert (play.run.state, play.run.cause) == (RunState.MANUAL_REQUIRED, "CANCELLED")
    assert act(play, "cancel", undo=False).answer == "refused"
    assert act(play, "cancel", undo=True, did_not_happen=True).answer == "changed"
    assert play.run.state is RunState.COMPENSATING


def test_a_call_is_not_repeated_to_learn_what_nobody_wants_any_more() -> None:
    saga = new_saga()
    add_step(saga, "one", no_undo="x")
    add_step(saga, "pay", Repeat.SAFE, irreversible=True, retry=ONCE)
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("pay", "unknown")
    assert play.state("pay") is StepState.UNKNOWN
    act(play, "cancel", undo=False)
    assert play.send(Claim("pay", WORKER)).claimed is None
    step = play.run.step("pay")
    assert step is not None and (step.state, step.doubt) == (StepState.FAILED, True)
    assert play.run.state is RunState.CANCELLED


def test_a_run_that_has_got_its_lock_is_looked_at_when_its_time_ends() -> None:
    saga = saga_of(lock=lambda order: order.id, active_timeout=timedelta(minutes=5))
    add_step(saga, "one", undo=True)
    play = Play(flow(saga), started=False)
    put(play, resource="x", active_since=NOW, wake_at=NOW + timedelta(minutes=5))
    play.send(Start())
    put(play, holds=True)
    play.now = NOW + HOUR
    play.send(Wake(None, 0))
    assert play.run.active_since == play.now
    assert play.run.wake_at is not None and play.run.wake_at <= play.now + timedelta(minutes=5)


def test_waiting_is_not_active_whoever_stored_the_state() -> None:
    saga = saga_of(active_timeout=timedelta(minutes=5))
    add_step(saga, "one", undo=True)
    saga.wait("w", Delivered, match=lambda v: v.input.id, timeout=72 * HOUR, on_timeout=Then.CANCEL)
    add_step(saga, "three", no_undo="x")
    play = Play(flow(saga), started=False)
    put(play, active_since=NOW)
    play.send(Start())
    play.succeed("one")
    put(play, active_since=NOW, active_for=timedelta(0))  # a process that does not know these left them
    play.now = NOW + 24 * HOUR
    play.signal("w")
    play.send(Claim("three", WORKER))
    assert play.run.state is RunState.RUNNING


def test_undoing_a_cancelled_run_that_has_nothing_to_undo_cancels_it() -> None:
    saga = new_saga()
    add_step(saga, "one", Repeat.NEVER, no_undo="x")
    play = Play(flow(saga))
    play.claim("one")
    act(play, "cancel", undo=True)
    play.lose("one")
    act(play, "compensate", did_not_happen=True)
    assert play.run.state is RunState.CANCELLED


@pytest.mark.parametrize("first", ["resume", "look"])
def test_an_event_from_before_the_deadline_finishes_the_run(first: str) -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    saga.wait("w", Delivered, match=lambda v: v.input.id, timeout=72 * HOUR, on_timeout=Then.CANCEL)
    play = Play(flow(saga), started=False)
    put(play, deadline_at=NOW + HOUR)
    play.send(Start())
    play.succeed("one")
    play.now = NOW + HOUR - SECOND
    play.present("w")
    play.now = NOW + HOUR + SECOND
    play.signal("w") if first == "resume" else play.send(Wake(None, 0))
    assert play.run.state is RunState.SUCCEEDED


def test_a_steps_own_code_is_no_limit_of_time() -> None:
    saga = saga_of(active_timeout=HOUR)
    add_step(saga, "one", undo=True)
    add_step(saga, "two", no_undo="x", on_failure=Then.COMPENSATE)
    play = Play(flow(saga), started=False)
    put(play, active_since=NOW)
    play.send(Start())
    play.succeed("one")
    play.fail("two", "fatal", "ACTIVE_TIMEOUT")
    play.succeed("undo_one")
    assert (play.run.state, play.run.cause) == (RunState.COMPENSATED, "STEP_ACTIVE_TIMEOUT")


@pytest.mark.parametrize("code", ["CANCELLED", "CANCELLED_NO_UNDO"])
def test_a_steps_own_code_is_no_cancel(code: str) -> None:
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two", Repeat.SAFE, undo=True, retry=ONCE, on_failure=Then.COMPENSATE, give_up=MINUTE)
    play = Play(flow(saga))
    play.succeed("one")
    play.fail("two", "unknown", code)
    play.now += 2 * HOUR
    step = play.claim("two")
    play.send(Probed("two", step.fence, ProbeError("X", "y")))
    before = play.run.state
    assert act(play, "cancel", undo=False, did_not_happen=True).answer == "refused"
    act(play, "skip", step="two")
    assert (before, play.run.state) == (RunState.MANUAL_REQUIRED, RunState.COMPENSATING)


def test_a_run_whose_turn_has_come_begins_by_itself() -> None:
    saga = saga_of(lock=lambda order: order.id)
    saga.wait("w", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.CANCEL)
    play = Play(flow(saga), started=False)
    put(play, resource="x")
    play.send(Start())
    put(play, holds=True)
    assert act(play, "resume").answer == "refused"


def test_what_was_skipped_in_doubt_is_undone_blindly_with_the_rest() -> None:
    saga = new_saga()
    add_step(saga, "one", Repeat.NEVER, blind=True, on_failure=Then.PERSON)
    add_step(saga, "two", no_undo="x", on_failure=Then.COMPENSATE)
    play = Play(flow(saga))
    play.claim("one")
    play.lose("one")
    act(play, "skip", step="one")
    play.fail("two", "fatal")
    play.succeed("undo_one")
    assert play.run.state is RunState.COMPENSATED
