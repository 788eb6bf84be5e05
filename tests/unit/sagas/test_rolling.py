"""Forward recovery where it is declared: tried without end, seen by a person, never undone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from milepost.sagas.facts import Act
from milepost.sagas.model import Work
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import Play, add_step, add_tx, flow, new_saga


def shipped() -> Play:
    """A run that has done what cannot be undone, and has one more thing to do."""
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "ship", irreversible=True)
    add_step(saga, "tell", on_failure=Then.RETRY, retry=Retry(attempts=2, within=None))
    play = Play(flow(saga))
    play.succeed("reserve")
    play.succeed("ship")
    return play


def state(play: Play) -> RunState:
    return play.run.state


def test_it_is_tried_without_end_and_a_person_sees_it() -> None:
    play = shipped()
    play.fail("tell", "not_sent")
    play.retry("tell")
    pauses = []
    for _ in range(8):
        play.fail("tell", "fatal", "CLOSED")
        assert (state(play), play.state("tell")) == (RunState.MANUAL_REQUIRED, StepState.MANUAL_REQUIRED)
        begun = play.now
        decision = play.wake("tell")
        pauses.append(play.now - begun)
        assert decision.work == (Work("tell", "work", "default"),)
        assert state(play) is RunState.RUNNING
    assert pauses == sorted(pauses) and pauses[-1] == timedelta(minutes=45), (
        "half of an hour and half its dice"
    )
    assert play.run.step("undo_reserve") is None
    play.succeed("tell")
    assert state(play) is RunState.SUCCEEDED


def test_a_person_may_decide_meanwhile() -> None:
    for act, end in (
        ("skip", RunState.SUCCEEDED),
        ("retry", RunState.RUNNING),
        ("compensate", RunState.COMPENSATING),
    ):
        play = shipped()
        play.fail("tell", "fatal")
        play.send(Act(act, "ann", "because", "tell"))  # type: ignore[arg-type]
        assert state(play) is end


def test_a_run_that_stops_goes_no_longer_forward() -> None:
    play = shipped()
    play.fail("tell", "fatal")
    play.send(Act("cancel", "ann", "enough", undo=False))
    assert state(play) is RunState.CANCELLED


def test_an_irreversible_step_may_stand_before_it() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "ship", irreversible=True)
    add_tx(saga, "close", on_failure=Then.RETRY)
    assert flow(saga).node("close") is not None
    with pytest.raises(DefinitionError, match="MP103"):
        saga = new_saga()
        add_step(saga, "reserve", undo=True)
        add_step(saga, "ship", irreversible=True)
        add_tx(saga, "close")
        flow(saga)


def test_a_loop_is_not_tried_without_end() -> None:
    from milepost.sagas.shapes import loop

    saga = new_saga()
    body = add_step(saga, "it")
    with pytest.raises(DefinitionError, match="MP138"):
        saga.flow(loop(body, until=lambda v: False, at_most=2, on_failure=Then.RETRY))
