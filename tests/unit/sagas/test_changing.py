"""What is made is what the constructor makes, and a copy with some fields changed what `dataclasses.replace` makes."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from milepost.sagas.changing import made, replace
from milepost.sagas.model import Decision, Step
from milepost.schemas.states import StepKind, StepState

from tests.support.sagas import add_step, new_run, new_saga


def test_a_copy_is_that_of_dataclasses_and_leaves_its_original_alone() -> None:
    saga = new_saga()
    saga.flow(add_step(saga, "pay"))
    run = new_run(saga.definition)
    before = dataclasses.replace(run)
    copy = replace(run, finish_n=3, cause="NO")
    assert copy == dataclasses.replace(run, finish_n=3, cause="NO")
    assert (run, copy.finish_n, run.finish_n) == (before, 3, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(copy, "finish_n", 4)  # noqa: B010 - the type checker would see it
    decision = Decision(answer="changed", run=run)
    assert replace(decision, run=copy) == dataclasses.replace(decision, run=copy)


def test_what_is_made_is_what_the_constructor_makes() -> None:
    own: dict[str, Any] = {
        "name": "pay",
        "kind": StepKind.STEP,
        "state": StepState.PENDING,
        "since": datetime(2026, 1, 1, tzinfo=UTC),
    }
    first, second = made(Step, **own), made(Step, **own, attempt=2)
    assert first == Step(**own)
    assert second == Step(**own, attempt=2)
    for wrong in ({**own, "colour": "red"}, {"name": "pay"}):
        with pytest.raises(TypeError, match=r"Step is not made of .*name"):
            made(Step, **wrong)


def test_a_field_that_is_not_there_is_refused() -> None:
    saga = new_saga()
    saga.flow(add_step(saga, "pay"))
    with pytest.raises(TypeError, match="Run has no colour"):
        replace(new_run(saga.definition), state=StepState.PENDING, colour="red")
