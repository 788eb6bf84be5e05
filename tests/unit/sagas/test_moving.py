"""Which runs can move to another version, and why others cannot: decided without anything being changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from milepost.sagas.model import Run, Step, Work
from milepost.sagas.moving import Move, plan
from milepost.sagas.nodes import Node
from milepost.sagas.saga import Saga
from milepost.schemas.errors import DefinitionError
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import LIMITS, NOW, OTHER, Order, Play, add_step, flow, new_saga


def versions(
    old: str, new: str, undo: str = "", *, key: Callable[[Order], Order] = lambda given: given, **names: str
) -> tuple[Saga[Order], Saga[Order]]:
    """Return v1 and v2 with the named steps; `names` maps others than those of one name."""
    v1, v2 = new_saga(), new_saga(version=2)
    for saga, steps in ((v1, old), (v2, new)):
        for step in steps.split():
            keep = step in undo.split()
            add_step(saga, step, undo=keep, no_undo=None if keep or not undo else "nothing")
        flow(saga)
    mine, theirs = ({node.name: node for node in saga.nodes} for saga in (v1, v2))
    same = {name: name for name in mine if name in theirs and name not in names}
    v2.migrate(v1, input=key, steps={mine[a]: theirs[b] for a, b in {**same, **names}.items()})
    return v1, v2


def moved(v2: Saga[Order], run: Run) -> Move | str:
    return plan(v2.past.migrations[1], v2.definition, run, NOW, LIMITS)


def run_to(v1: Saga[Order], *done: str) -> Run:
    play = Play(v1.definition)
    for name in done:
        play.succeed(name)
    return play.run


def test_a_run_goes_on_with_the_new_steps() -> None:
    v1, v2 = versions("a b c", "a b extra c")
    move = moved(v2, run_to(v1, "a"))
    assert isinstance(move, Move)
    assert (move.run.definition, move.run.shape, move.names) == (2, v2.definition.shape, {"a": "a", "b": "b"})
    assert move.work == (Work("b", "work", "default"),)
    play = Play(v2.definition)
    play.run = move.run
    for name in ("b", "extra", "c"):
        play.succeed(name)
    assert play.run.state is RunState.SUCCEEDED


def test_names_may_change_places() -> None:
    v1, v2 = versions("a b c", "b a c", a="b", b="a")
    move = moved(v2, run_to(v1, "a", "b"))
    assert isinstance(move, Move)
    assert [step.name for step in move.run.steps] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("old", "new", "done", "why"),
    [
        ("a b c", "a c", ("a",), "it has come to b, which has no place in order v2"),
        ("a b c", "a x b c", ("a",), "it is past x, which is new in order v2 and would never be done"),
        (
            "a b c",
            "b a c",
            ("a",),
            "b is open, and order v2 puts it before something that is done already",
        ),
    ],
)
def test_a_run_that_is_past_what_is_new_stays(old: str, new: str, done: tuple[str, ...], why: str) -> None:
    v1, v2 = versions(old, new)
    assert moved(v2, run_to(v1, *done)) == why


def with_step(run: Run, name: str, **changes: Any) -> Run:
    steps = tuple(replace(step, **changes) if step.name == name else step for step in run.steps)
    return replace(run, steps=steps)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": StepState.RUNNING, "worker": OTHER}, "b is RUNNING: let it come to an end first"),
        ({"state": StepState.UNKNOWN}, "b is UNKNOWN: let it come to an end first"),
        ({"doubt": True}, "nobody knows whether b took effect: settle it first"),
        ({"signal": {}}, "the event that b waited for has just come: it goes on with it first"),
        ({"iteration": "2"}, "it has come to b, and only steps and waits outside of loops can move"),
    ],
)
def test_what_is_under_way_stays(changes: dict[str, Any], why: str) -> None:
    v1, v2 = versions("a b", "a b extra")
    assert moved(v2, with_step(run_to(v1, "a"), "b", **changes)) == why


def test_what_was_tried_keeps_its_operation_key() -> None:
    v1, v2 = versions("a b", "a bb extra", b="bb")
    run = run_to(v1, "a")
    assert isinstance(moved(v2, run), Move)
    tried = with_step(run, "b", attempt=1, state=StepState.RETRY_PENDING)
    assert moved(v2, tried) == (
        "b has been tried under its operation key, which would be another under the name bb"
    )


def test_what_is_stopping_is_undone_by_the_version_that_did_it() -> None:
    v1, v2 = versions("a b", "a b extra")
    run = replace(run_to(v1, "a"), state=RunState.COMPENSATING, cause="X")
    assert moved(v2, run) == (
        "it is COMPENSATING and stopping: what was done is undone by the version that did it"
    )


def test_an_undo_is_not_lost() -> None:
    v1, v2 = versions("a b", "a b", undo="a")
    assert isinstance(moved(v2, run_to(v1, "a")), Move)
    v1, v2 = versions("a b", "a b", undo="a")
    bare = new_saga(version=3)
    for name in ("a", "b"):
        add_step(bare, name)
    flow(bare)
    bare.migrate(v1, input=lambda given: given, steps=dict(zip(v1.nodes, bare.nodes, strict=True)))
    found = plan(bare.past.migrations[1], bare.definition, run_to(v1, "a"), NOW, LIMITS)
    assert found == "a could no more be undone: a has no undo"


def test_results_that_do_not_decode_stay() -> None:
    v1, v2 = versions("a b", "a b")
    run = with_step(run_to(v1, "a"), "a", result={"other": 1})
    assert moved(v2, run) == "the result of a is no Done (ValidationError)"


def test_inputs_that_cannot_be_made_stay() -> None:
    def broken(given: Order) -> Order:
        raise LookupError(given.id)

    for fn, why in (
        (broken, "input= raised LookupError"),
        (lambda given: Order(id="x"), "its business key would change, to 'x'"),
    ):
        v1, v2 = versions("a b", "a b", key=fn)
        assert moved(v2, run_to(v1, "a")) == why


def test_a_run_of_an_edited_version_stays() -> None:
    v1, v2 = versions("a b", "a b")
    run = replace(run_to(v1, "a"), shape="another")
    assert moved(v2, run) == "it is not pinned to order v1 as this application has it"


def test_maps_are_checked_when_they_are_declared() -> None:
    v1, v2 = versions("a b", "a b")
    a, b = v1.nodes
    cases: list[tuple[Saga[Order], dict[Node[Order, Any], Node[Order, Any]], str]] = [
        (v1, {}, "it is declared twice"),
        (v2, {}, "runs move from an older version of the same saga, and order v2 is none"),
        (v1, {a: v2.nodes[0], b: v2.nodes[0]}, "two steps cannot both become a"),
        (v1, {add_step(new_saga(), "zzz"): v2.nodes[0]}, "zzz is not in the flow of order v1. It has: a > b"),
    ]
    for old, steps, words in cases:
        with pytest.raises(DefinitionError, match="MP121") as raised:
            v2.migrate(old, input=lambda given: given, steps=steps)
        assert words in raised.value.text


def test_a_moved_row_keeps_what_it_knows() -> None:
    v1, v2 = versions("a b", "a b")
    run = run_to(v1, "a")
    move = moved(v2, run)
    assert isinstance(move, Move)
    before, after = run.step("a"), move.run.step("a")
    assert isinstance(before, Step) and before == after
    assert move.run.history_n == run.history_n + 1
