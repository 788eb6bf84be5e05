"""A fan-out: its list, how its items end together, what is begun again, and what its undo is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from milepost import Context, DefinitionError
from milepost.sagas.drawing import boxes_of
from milepost.sagas.drawing_plan import draw
from milepost.sagas.facts import ChildSeen, Succeeded, TryFailed, Wake
from milepost.sagas.model import Decision, Fan
from milepost.sagas.standing import waits
from milepost.sagas.words import CHILD_STOPPING
from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepState

from tests.support.branches import ONCE, Branches
from tests.support.nestedsagas import spread
from tests.support.sagas import Order, add_step, new_saga


def play_of(*, after: bool = False, undone: bool = False, **options: Any) -> Branches:
    """Return a started run of a fan-out, of which half the items have to succeed."""
    saga = new_saga()
    node = spread(saga, **({"no_undo": None} if undone else {}), **options)
    if undone:

        async def recall(ctx: Any, done: Any) -> None: ...

        node.undo(recall)
    saga.flow(node, *([add_step(saga, "after", retry=ONCE)] if after else []))
    return Branches(saga.definition)


def listed(play: Branches, items: int) -> Decision:
    """Let the list be read."""
    play.begin("spread")
    return play.send(Succeeded("spread", play.row("spread").fence, items=items))


def seen(
    play: Branches, succeeded: int, failed: int, *, total: int = 4, under_way: int = 0, attempt: int = 0
) -> Decision:
    """Say how the items stand; all have been given out."""
    row = play.row("spread")
    fan = Fan(attempt or row.attempt, total, total, under_way, succeeded, failed)
    rows = tuple(replace(step, fan=fan) if step is row else step for step in play.run.steps)
    play.run = replace(play.run, steps=rows)
    return play.send(ChildSeen("spread"))


def test_the_row_holds_a_worker_while_it_lists_and_none_afterwards() -> None:
    play = play_of()
    play.begin("spread")
    assert (play.row("spread").state, play.state_now()) == (StepState.RUNNING, RunState.RUNNING)
    assert not waits(play.row("spread"))
    decision = play.send(Succeeded("spread", 1, items=4))
    assert (play.row("spread").state, play.state_now()) == (StepState.WAITING, RunState.WAITING)
    assert [seek.step for seek in decision.seeks] == ["spread"]
    assert play.row("spread").worker is None


def test_no_items_succeed_at_once() -> None:
    play = play_of()
    listed(play, 0)
    assert play.row("spread").result == {"total": 0, "succeeded": 0, "failed": 0}
    assert play.state_now() is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("succeeded", "state", "step"),
    [
        (4, RunState.SUCCEEDED, StepState.SUCCEEDED),
        (2, RunState.PARTIALLY_SUCCEEDED, StepState.SUCCEEDED),
        (1, RunState.FAILED, StepState.FAILED),
        (0, RunState.FAILED, StepState.FAILED),
    ],
)
def test_the_share_decides(succeeded: int, state: RunState, step: StepState) -> None:
    play = play_of()
    listed(play, 4)
    seen(play, succeeded, 4 - succeeded)
    assert (play.state_now(), play.row("spread").state) == (state, step)
    assert play.row("spread").result == {"total": 4, "succeeded": succeeded, "failed": 4 - succeeded}


@pytest.mark.parametrize(("of", "share"), [(100, 0.07), (100, 0.29), (20, 0.95), (3, 1 / 3), (7, 0.0)])
def test_a_share_is_met_by_exactly_as_many(of: int, share: float) -> None:
    play = play_of(min_success=share)
    listed(play, of)
    seen(play, round(of * share), of - round(of * share), total=of)
    assert play.row("spread").state is StepState.SUCCEEDED


def test_nothing_follows_while_some_are_under_way_or_of_an_earlier_attempt() -> None:
    play = play_of()
    listed(play, 4)
    assert seen(play, 3, 0, under_way=1).answer == "ignored"
    assert seen(play, 3, 1, attempt=7).answer == "ignored"
    assert play.row("spread").state is StepState.WAITING


def test_who_wakes_has_them_looked_after_again() -> None:
    play = play_of()
    listed(play, 4)
    decision = play.send(Wake("spread", play.row("spread").generation))
    assert [seek.step for seek in decision.seeks] == ["spread"]
    assert play.row("spread").nudges == 1


def test_a_second_look_after_the_end_changes_nothing() -> None:
    play = play_of(after=True)
    listed(play, 4)
    seen(play, 3, 1)
    assert seen(play, 3, 1).answer == "ignored"
    assert play.row("spread").state is StepState.SUCCEEDED


def test_a_person_has_only_the_failed_begun_again() -> None:
    play = play_of(on_failure=Then.PERSON)
    listed(play, 4)
    seen(play, 1, 3)
    assert play.state_now() is RunState.MANUAL_REQUIRED
    play.act("retry", "spread")
    row = play.row("spread")
    assert (row.state, row.attempt, row.result) == (StepState.WAITING, 2, None)
    assert seen(play, 1, 3, attempt=1).answer == "ignored", "those of the first attempt count no more"
    seen(play, 4, 0)
    assert play.state_now() is RunState.SUCCEEDED


@pytest.mark.parametrize("code", ["MP392", "MP393", "MP394"])
def test_a_wrong_list_is_for_a_person_at_once_and_is_read_again(code: str) -> None:
    play = play_of()
    play.begin("spread")
    play.send(TryFailed("spread", 1, "unknown", code, "words"))
    assert (play.row("spread").state, play.run.code) == (StepState.MANUAL_REQUIRED, code)
    play.act("retry", "spread")
    assert play.row("spread").state is StepState.PENDING


def test_a_list_that_was_lost_is_read_again_and_leaves_no_doubt() -> None:
    play = play_of()
    play.begin("spread")
    play.send(TryFailed("spread", 1, "unknown", "AWAY", "words"))
    assert not play.row("spread").doubt
    assert play.state_now() is RunState.FAILED, "it had one try"


def test_a_list_that_comes_when_the_run_is_stopping_begins_nothing() -> None:
    play = play_of()
    play.begin("spread")
    play.act("cancel", None)
    decision = play.send(Succeeded("spread", 1, items=4))
    assert (play.row("spread").state, decision.seeks) == (StepState.CANCELLED, ())
    assert play.state_now() is RunState.CANCELLED


@pytest.mark.parametrize(
    ("succeeded", "failed", "ends"),
    [
        (0, 0, StepState.CANCELLED),
        (1, 0, StepState.FAILED),
        (0, 1, StepState.FAILED),
        (4, 0, StepState.SUCCEEDED),
    ],
)
def test_a_fan_out_that_is_stopped_ends_as_its_items_have(
    succeeded: int, failed: int, ends: StepState
) -> None:
    play = play_of()
    listed(play, 4)
    play.act("cancel", None)
    assert play.row("spread").code == CHILD_STOPPING
    seen(play, succeeded, failed)
    assert play.row("spread").state is ends
    assert play.state_now() is RunState.CANCELLED


@pytest.mark.parametrize("how", ["later", "itself", "stopped", "by a person"])
def test_its_undo_is_called_whenever_items_have_succeeded(how: str) -> None:
    play = play_of(undone=True, after=True, on_failure=Then.PERSON if how == "by a person" else None)
    listed(play, 4)
    if how == "later":
        seen(play, 3, 1)
        play.begin("after")
        play.end("after", verdict="fatal")
    elif how == "itself":
        seen(play, 1, 3)
    elif how == "stopped":
        play.act("cancel", None, undo=True)
        seen(play, 1, 0)
    else:
        seen(play, 1, 3)
        play.act("cancel", None, undo=True)
    assert play.open() == {"recall"}
    assert play.undo() == "recall"
    assert play.state_now() is RunState.COMPENSATED


def test_where_no_item_has_succeeded_nothing_is_undone() -> None:
    play = play_of(undone=True)
    listed(play, 4)
    seen(play, 0, 4)
    assert play.state_now() is RunState.FAILED


def test_its_drawing_says_what_it_starts() -> None:
    (box,) = boxes_of(draw(play_of().definition).flow)
    assert box.facts[0] == "runs of child, 20 at once, 50% have to succeed"


# --- mistakes ---------------------------------------------------------------------------------------------


async def _items(ctx: Context[Order]) -> AsyncIterator[Order]:
    yield ctx.input


async def _at_once(ctx: Context[Order]) -> list[Order]:
    return []


def _plain(ctx: Context[Order]) -> Any:
    yield ctx.input


async def _of_nothing() -> AsyncIterator[Order]:
    yield Order(id="x")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"items": _at_once}, "MP142"),
        ({"items": _plain}, "MP142"),
        ({"items": [1, 2]}, "MP142"),
        ({"items": _of_nothing}, "MP117"),
        ({"concurrency": 0}, "MP143"),
        ({"concurrency": True}, "MP143"),
        ({"concurrency": 10_001}, "MP143"),
        ({"min_success": 95}, "MP144"),
        ({"min_success": -0.1}, "MP144"),
        ({"min_success": float("nan")}, "MP144"),
        ({"min_success": None}, "MP144"),
        ({"on_failure": Then.RETRY}, "MP138"),
        ({"queue": "no queue"}, "MP114"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], code: str) -> None:
    child, saga = new_saga("child"), new_saga()
    child.flow(add_step(child, "work"))
    with pytest.raises(DefinitionError, match=code):
        saga.flow(saga.each("spread", child, **({"items": _items} | options)))
