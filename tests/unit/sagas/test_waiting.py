"""Waits: begun, and satisfied by their signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from milepost.sagas.facts import Signalled
from milepost.sagas.model import OpenWait
from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import NOW, Delivered, Play, flow, new_saga
from tests.support.waits import DAY, waiting


def test_a_wait_is_registered_under_its_generation_with_what_match_returned() -> None:
    play = waiting(Then.PERSON, broadcast=True)
    step = play.step("delivered")
    assert (step.state, step.wake_at, play.run.state) == (StepState.WAITING, NOW + 3 * DAY, RunState.WAITING)
    assert play.last.opens == (OpenWait("delivered", step.generation, "test.delivered", "ship", True),)
    assert play.last.work == ()
    assert play.events[-1] == "run.waiting"


def test_a_wait_may_be_the_first_node() -> None:
    saga = new_saga()
    saga.wait("delivered", Delivered, match=lambda v: v.input.id, timeout=DAY, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    assert (play.run.state, play.last.opens[0].key) == (RunState.WAITING, "o-1")
    play.signal("delivered")
    assert play.run.state is RunState.SUCCEEDED


def test_a_signal_completes_the_wait_with_its_body_and_the_run_goes_on() -> None:
    play = waiting(Then.PERSON)
    decision = play.signal("delivered", {"id": "ship", "more": 1})
    step = play.step("delivered")
    assert (step.state, step.result) == (StepState.SUCCEEDED, {"id": "ship", "more": 1})
    assert (play.run.state, play.state("close")) == (RunState.RUNNING, StepState.PENDING)
    assert decision.closes == ()
    assert [entry.event for entry in decision.history] == ["run.resumed", "step.completed"]


def test_a_signal_told_twice_is_late_and_recorded() -> None:
    play = waiting(Then.PERSON)
    generation = play.step("delivered").generation
    play.signal("delivered")
    again = play.send(Signalled("delivered", generation, {"id": "x"}))
    assert (again.answer, again.history[0].event) == ("ignored", "signal.late")


def test_a_signal_that_is_not_the_event_goes_to_a_person() -> None:
    play = waiting(Then.PERSON)
    play.signal("delivered", {"nothing": True})
    assert (play.run.state, play.run.code) == (RunState.MANUAL_REQUIRED, "SIGNAL_INVALID")


def test_a_signal_for_a_step_is_refused() -> None:
    play = waiting(Then.PERSON)
    assert play.send(Signalled("ship", 1, {})).answer == "refused"


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (lambda v: 1 / 0, "ZeroDivisionError"),
        (lambda v: "", "is empty"),
        (lambda v: 7, "is no text but int"),
        (lambda v: "a\x00b", "U+0000"),
        (lambda v: "\ud800", "lone surrogate"),
        (lambda v: "x" * 600, "longer than 512"),
    ],
)
def test_a_match_that_fails_goes_to_a_person_with_the_reason(match: Callable[[Any], Any], words: str) -> None:
    play = waiting(Then.PERSON, match=match)
    step = play.step("delivered")
    assert (step.state, step.code, play.run.code) == (
        StepState.MANUAL_REQUIRED,
        "MATCH_FAILED",
        "MATCH_FAILED",
    )
    assert words in (step.message or "")
    assert play.last.opens == ()


def test_a_match_that_no_index_can_hold_goes_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.sagas.waits.INDEXED", 2000)
    monkeypatch.setattr("milepost.schemas.texts.INDEXED", 2000)
    play = waiting(Then.PERSON, match=lambda v: "\U0001f69a" * 500)
    step = play.step("delivered")
    assert (step.state, step.code) == (StepState.MANUAL_REQUIRED, "MATCH_FAILED")
    assert "more than 2000 bytes" in (step.message or "")
