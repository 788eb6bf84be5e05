"""What a step in a loop is told: its round, and what the round before fell short of."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas import rounds
from milepost.sagas.shapes import loop, optional
from milepost.schemas.options import Retry, Then
from milepost.schemas.states import RunState

from tests.support.branches import Branches, branching
from tests.support.sagas import add_step, new_saga

ONCE = Retry(attempts=1)


def paper(at_most: int = 3, **options: Any) -> Branches:
    """Write and review, in rounds, until a review says so."""
    saga = new_saga()
    write, review = (add_step(saga, name, undo=True, retry=ONCE) for name in ("write", "review"))
    until = lambda v: v.result(review).id == "good"  # noqa: E731
    saga.flow(loop(write, review, until=until, at_most=at_most, name="papers", **options))
    return Branches(saga.definition)


def told(play: Branches, name: str, iteration: str) -> tuple[str, str] | None:
    found = rounds.fell_short(play.definition, play.run, name, iteration)
    return None if found is None else (found.code, found.message)


def poor(play: Branches, name: str, iteration: str, code: str = "DRY") -> None:
    play.begin(name, iteration)
    play.end(name, iteration, verdict="quality", code=code)


@pytest.mark.parametrize(("iteration", "number"), [("", 1), ("1", 1), ("3", 3), ("3.1", 1), ("1.12", 12)])
def test_the_round_is_that_of_the_innermost_loop(iteration: str, number: int) -> None:
    assert rounds.number(iteration) == number


def test_the_next_round_is_told_what_the_one_before_fell_short_of() -> None:
    play = paper()
    assert told(play, "write", "1") is None
    play.ok("write", "1")
    poor(play, "review", "1")
    assert told(play, "write", "2") == ("DRY", "no")
    poor(play, "write", "2", "EMPTY")
    assert told(play, "write", "3") == ("EMPTY", "no"), "of the round before, and of no earlier one"
    assert told(play, "review", "3") == ("EMPTY", "no")
    assert told(play, "undo_write", "3") == ("EMPTY", "no")


def test_a_round_that_until_was_not_content_with_says_nothing() -> None:
    play = paper()
    poor(play, "write", "1")
    play.ok("write", "2")
    play.ok("review", "2")
    assert told(play, "write", "3") is None


def test_the_round_that_a_person_allows_is_told_too() -> None:
    play = paper(1, on_failure=Then.PERSON)
    poor(play, "write", "1")
    assert play.state_now() is RunState.MANUAL_REQUIRED
    play.act("retry", "papers")
    assert play.open() == {"write"}
    assert told(play, "write", "2") == ("DRY", "no")


def test_another_failure_that_was_tolerated_is_no_poor_work() -> None:
    play = branching(
        lambda a, b: (loop(optional(a), b, until=lambda v: False, at_most=3, name="papers"),), "ab"
    )
    play.begin("a", "1")
    play.end("a", "1", verdict="fatal")
    play.ok("b", "1")
    assert told(play, "a", "2") is None


def test_in_nested_loops_it_is_of_the_inner_one() -> None:
    play = branching(
        lambda a, b: (
            loop(
                a,
                loop(b, until=lambda v: False, at_most=2, name="inner"),
                until=lambda v: False,
                at_most=3,
                name="outer",
            ),
        ),
        "ab",
    )
    poor(play, "a", "1")
    play.ok("a", "2")
    assert (told(play, "a", "2"), told(play, "b", "2.1")) == (("DRY", "no"), None)
    poor(play, "b", "2.1", "EMPTY")
    assert told(play, "b", "2.2") == ("EMPTY", "no")
