"""The worklist names exactly the acts that the state machine accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from milepost.console.worklist import KINDS, possible
from milepost.sagas import questions
from milepost.sagas.decide import decide
from milepost.sagas.facts import Act, ActName, Claim, Wake
from milepost.schemas.options import Repeat, Retry, Then
from milepost.schemas.states import Risk, RunState, StepKind, StepState

from tests.support.allsagas import add_approval, answers
from tests.support.sagas import HOUR, LIMITS, OTHER, Delivered, Play, add_step, add_tx, flow, new_saga


def step() -> Play:
    """A step in doubt, with something to undo before it."""
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_step(saga, "it", Repeat.NEVER, on_failure=Then.PERSON, no_undo="none")
    play = Play(flow(saga))
    play.succeed("before")
    play.fail("it", "unknown")
    return play


def tx() -> Play:
    saga = new_saga()
    add_tx(saga, "it", on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.fail("it")
    return play


def wait() -> Play:
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    play = Play(flow(saga))
    play.now += 2 * HOUR
    play.send(Wake("it", play.step("it").generation))
    return play


def stopping() -> Play:
    """The same, of a run that was stopping before."""
    play = step()
    play.run = replace(play.run, cause="NO")
    return play


def undo() -> Play:
    saga = new_saga()
    add_step(saga, "before", undo=True, undo_retry=Retry(attempts=1))
    add_step(saga, "after")
    play = Play(flow(saga))
    play.succeed("before")
    play.fail("after")
    play.fail("undo_before")
    return play


def approval() -> Play:
    """An approval that has expired."""
    saga = new_saga()
    add_approval(saga, "it")
    play = Play(flow(saga))
    play.wake("it")
    return play


def risky(risk: Risk = Risk.HIGH) -> Play:
    """An undo that waits for approval."""
    saga = new_saga()
    add_step(saga, "before", undo=True, risk=risk)
    add_step(saga, "after")
    play = Play(flow(saga))
    play.succeed("before")
    play.fail("after")
    return play


def void() -> Play:
    """A step whose approval was given for another input."""
    saga = new_saga()
    add_approval(saga, "ok")
    add_step(saga, "it", no_undo="none")
    play = Play(flow(saga))
    play.send(answers(play.step("ok"))[0])
    play.run = replace(play.run, input={"id": "o-2"})
    play.send(Claim("it", OTHER))
    return play


def stands_still() -> Play:
    """A run in front of a person with nothing that stands there."""
    play = tx()
    play.run = replace(play.run, steps=())
    return play


@pytest.mark.parametrize(
    "scene",
    [step, stopping, tx, wait, undo, approval, risky, void, stands_still],
    ids=lambda scene: scene.__name__,
)
def test_what_is_listed_is_what_is_accepted(scene: Callable[[], Play]) -> None:
    play = scene()
    run = play.run
    persons = {StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED}
    row = next((row for row in run.steps if row.state in persons), None)
    kind = "run" if row is None else row.kind.value.lower()
    assert kind in KINDS and run.state in {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}
    results: dict[StepKind, Any] = {StepKind.STEP: {"id": "it"}, StepKind.WAIT: {"id": "o-1"}}

    def accepted(what: ActName) -> bool:
        of_step = what in {"retry", "skip", "mark_succeeded", "approve", "reject"}
        asked = None if row is None else questions.open_in(row)
        seen: dict[str, Any] = {} if asked is None else {"generation": asked.generation, "hash": asked.hash}
        act = Act(
            what,
            "ann",
            "seen on the other side",
            step=row.name if row is not None and of_step else None,
            result=results.get(row.kind) if row is not None and what == "mark_succeeded" else None,
            did_not_happen=True,
            roles=frozenset({"boss"}),
            **seen,
        )
        return decide(play.definition, run, act, play.now, dice=0.5, limits=LIMITS).answer == "changed"

    asked = row is not None and questions.open_in(row) is not None
    acts: set[ActName] = {what for what in get_args(ActName) if accepted(what)}
    assert {what.replace("_", "-") for what in acts} == set(
        possible(kind, run.state, run.cause, asked=asked, undo=row is not None and row.undo_of is not None)
    )
