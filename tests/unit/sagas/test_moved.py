"""The database has become another one, which may have forgotten a call: only a SAFE step is simply called first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from milepost.sagas.facts import Act, Claim, ProbeAbsent, ProbeFound, Succeeded
from milepost.schemas.options import Repeat
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import (
    HOUR,
    LIMITS,
    MINUTE,
    NOW,
    SECOND,
    WORKER,
    Play,
    add_step,
    add_tx,
    flow,
    new_saga,
)


def moved(repeat: Repeat, *, at: timedelta = timedelta(0), before: bool = True) -> Play:
    """A run of two such steps, made before the database moved, or after it."""
    saga = new_saga()
    for name in ("one", "two"):
        add_step(saga, name, repeat, probe=repeat is Repeat.ASK_FIRST)
    play = Play(flow(saga))
    play.run = replace(play.run, moved_at=NOW + at if before else None)
    return play


def claim(play: Play, name: str) -> Any:
    return play.send(Claim(name, WORKER)).claimed


def test_a_step_that_may_be_asked_about_is_asked_about_before_its_first_call() -> None:
    play = moved(Repeat.ASK_FIRST)
    assert claim(play, "one") is None
    row = play.step("one")
    assert (row.state, row.doubt, row.attempt, row.code) == (StepState.UNKNOWN, True, 0, "DATABASE_MOVED")
    assert [work.step for work in play.last.work] == ["one"]
    play.probe("one", ProbeFound({"id": "one"}))
    assert (play.state("one"), play.run.state) == (StepState.SUCCEEDED, RunState.RUNNING)
    assert claim(play, "two") is None, "each step may have been called"


def test_absent_counts_once_no_call_of_before_can_be_under_way() -> None:
    play = moved(Repeat.ASK_FIRST)
    node = play.definition.node("one")
    assert node is not None
    claim(play, "one")
    play.probe("one", ProbeAbsent())
    assert play.state("one") is StepState.UNKNOWN
    play.wake("one")
    assert play.now == NOW + node.attempt_timeout + LIMITS.slack + MINUTE, "its time, the lease's, and settle"
    play.probe("one", ProbeAbsent())
    assert play.state("one") is StepState.PENDING
    assert claim(play, "one") is not None, "asked about once"


def test_a_step_that_is_never_repeated_goes_to_a_person_once() -> None:
    play = moved(Repeat.NEVER)
    assert claim(play, "one") is None
    assert (play.state("one"), play.run.state) == (StepState.MANUAL_REQUIRED, RunState.MANUAL_REQUIRED)
    assert play.step("one").code == "OUTCOME_UNKNOWN"
    play.now += SECOND
    play.send(Act("retry", by="ann", reason="it did not happen", step="one", did_not_happen=True))
    assert claim(play, "one") is not None


def test_what_a_worker_says_that_was_forgotten_is_late() -> None:
    """Its claim is gone from the database, and the fence that it had is the doubted row's."""
    play = moved(Repeat.ASK_FIRST)
    forgotten = replace(play.run, moved_at=None)
    lost = Play(play.definition)
    lost.run = forgotten
    fence = lost.claim("one").fence
    claim(play, "one")
    decision = play.send(Succeeded("one", fence, {"id": "one"}))
    assert decision.answer == "ignored" and play.events[-1] == "step.late_result"


def test_safe_and_transactional_steps_are_called_as_ever() -> None:
    saga = new_saga()
    add_step(saga, "one")
    add_tx(saga, "two", no_undo="none needed")
    play = Play(flow(saga))
    play.run = replace(play.run, moved_at=NOW + HOUR)
    play.succeed("one")
    assert claim(play, "two") is not None


def test_what_was_called_since_is_not_doubted() -> None:
    play = moved(Repeat.ASK_FIRST, at=-HOUR)
    claim(play, "one")
    play.probe("one", ProbeFound({"id": "one"}))
    play.run = replace(play.run, moved_at=NOW)
    assert claim(play, "two") is None
    play.now += timedelta(days=1)
    play.probe("two", ProbeAbsent())
    assert claim(play, "two") is not None
    play.hand_back("two")
    assert claim(play, "two") is not None, "it was begun in this database"


def test_runs_that_were_made_since_are_not_doubted() -> None:
    assert claim(moved(Repeat.ASK_FIRST, before=False), "one") is not None
