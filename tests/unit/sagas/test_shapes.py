"""Nested shapes: beside, one way or another, again and again; joined once, stopped safely, undone in order."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas import planting
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Claim, Succeeded
from milepost.sagas.shapes import all_of, at_least, best_effort, loop, optional, sequence, when
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.branches import Branches, branching
from tests.support.sagas import HOUR, WORKER, Delivered, add_step, new_saga

ONCE = Retry(attempts=1)


def steps(saga: Any, names: str, **options: Any) -> list[Any]:
    """Add a step for each letter, with an undo."""
    return [add_step(saga, name, undo=True, retry=ONCE, **options) for name in names]


def test_branches_run_side_by_side_and_join_once() -> None:
    play = branching(lambda a, b, c, d: (a, all_of(b, sequence(c)), d), "abcd")
    assert play.open() == {"a"}
    play.ok("a")
    assert play.open() == {"b", "c"}
    play.ok("c")
    assert play.open() == {"b"}
    play.ok("b")
    assert play.open() == {"d"}
    play.ok("d")
    assert play.state_now() is RunState.SUCCEEDED


@pytest.mark.parametrize("first", ["b", "c"])
def test_two_that_finish_at_once_join_once(first: str) -> None:
    """Each was decided on what it saw; the one that comes second decides anew, and only it begins what follows."""
    play = branching(lambda b, c, d: (all_of(b, c), d), "bcd")
    second = "c" if first == "b" else "b"
    for name in "bc":
        play.fact(Claim(name, WORKER))
    play.fact(Succeeded(first, 1, {"id": first}))
    assert play.run.step("d") is None
    play.fact(Succeeded(second, 1, {"id": second}))
    assert play.open() == {"d"}


def test_a_failed_branch_stops_the_run_when_the_others_have_ended() -> None:
    """What runs may finish and is undone, what nobody has begun is cancelled; undo is in reverse order of finish."""
    play = branching(lambda a, b, c, d, e: (a, all_of(b, c, sequence(d, e))), "abcde")
    play.ok("a")
    play.begin("b")
    play.ok("d")
    play.fail("c")
    assert play.state_now() is RunState.COMPENSATING
    assert play.states()["e"] is StepState.CANCELLED
    assert play.open() == {"b"}
    play.end("b")
    assert [play.undo() for _ in range(3)] == ["undo_b", "undo_d", "undo_a"]
    assert play.state_now() is RunState.COMPENSATED


def test_a_failure_without_undo_waits_for_what_runs_beside_it() -> None:
    saga = new_saga()
    a = add_step(saga, "a", on_failure=Then.FAIL, retry=ONCE, no_undo="none needed")
    b = add_step(saga, "b", undo=True, retry=ONCE)
    saga.flow(all_of(a, b))
    play = Branches(saga.definition)
    play.begin("b")
    play.fail("a")
    assert play.state_now() is RunState.COMPENSATING
    play.end("b")
    assert play.state_now() is RunState.FAILED
    assert play.run.step("undo_b") is None


def test_best_effort_and_optional_go_on_whatever_happens() -> None:
    play = branching(lambda a, b, c, d: (best_effort(a, b), optional(c), d), "abcd")
    play.fail("a")
    play.ok("b")
    play.fail("c")
    play.fail("d")
    assert play.undo() == "undo_b"
    assert play.state_now() is RunState.COMPENSATED


def test_at_least_goes_on_early_and_gives_up_the_rest() -> None:
    play = branching(lambda a, b, c, d, e: (at_least(2, a, b, c, d), e), "abcde")
    play.begin("c")
    play.ok("a")
    play.ok("b")
    assert play.open() == {"c"}
    assert play.states()["d"] is StepState.CANCELLED
    play.end("c")
    assert play.open() == {"e"}


def test_at_least_stops_as_soon_as_too_many_have_failed() -> None:
    play = branching(lambda a, b, c: (at_least(2, a, b, c),), "abc")
    play.fail("a")
    assert play.state_now() in {RunState.PENDING, RunState.RUNNING}
    play.fail("c")
    assert play.state_now() is RunState.FAILED
    assert play.states()["b"] is StepState.CANCELLED


def test_a_lost_part_within_an_optional_one_gives_up_its_branches() -> None:
    play = branching(lambda a, b, c, d: (optional(all_of(a, sequence(b, c))), d), "abcd")
    play.begin("b")
    play.fail("a")
    assert play.state_now() is RunState.RUNNING
    play.end("b")
    assert play.open() == {"d"}
    assert play.run.step("c") is None


@pytest.mark.parametrize(("says", "taken", "other"), [(True, "b", "c"), (False, "c", "b")])
def test_a_choice_is_asked_once_and_kept(says: bool, taken: str, other: str) -> None:
    asked = []

    def test(view: Any) -> bool:
        asked.append(view.input.id)
        return says

    play = branching(lambda a, b, c, d: (a, when(test, b, otherwise=[c]), d), "abcd")
    play.ok("a")
    assert play.open() == {taken}
    play.ok(taken)
    play.ok("d")
    assert asked == ["o-1"]
    assert play.run.step(other) is None
    assert play.state_now() is RunState.SUCCEEDED


def test_a_choice_without_a_way_goes_past() -> None:
    play = branching(lambda a, b: (when(lambda v: False, a), b), "ab")
    assert play.open() == {"b"}


def test_a_choice_that_raises_goes_to_a_person_and_can_be_asked_again() -> None:
    broken = [True]

    def test(view: Any) -> bool:
        if broken.pop():
            raise KeyError("x")
        return True

    play = branching(lambda a: (when(test, a, name="paid"),), "a")
    row = play.run.step("paid")
    assert row is not None
    assert (play.run.state, row.state, row.code) == (
        RunState.MANUAL_REQUIRED,
        StepState.MANUAL_REQUIRED,
        "TEST_FAILED",
    )
    broken.append(False)
    play.act("retry", "paid")
    assert play.open() == {"a"}


def test_a_loop_has_rows_of_its_own_in_every_round() -> None:
    rounds = []

    def done(view: Any) -> bool:
        rounds.append(1)
        return len(rounds) == 3

    play = branching(lambda a, b, c: (loop(a, b, until=done, at_most=5), c), "abc")
    for number in "123":
        play.ok("a", number)
        play.ok("b", number)
    assert play.open() == {"c"}
    play.fail("c")
    assert [play.undo() for _ in range(6)] == ["undo_b", "undo_a"] * 3
    undone = [(s.name, s.iteration) for s in play.run.steps if s.undo_of]
    assert undone[0] == ("undo_b", "3")
    assert undone[-1] == ("undo_a", "1")


def test_a_loop_that_is_not_done_in_its_last_round_fails() -> None:
    play = branching(lambda a: (loop(a, until=lambda v: False, at_most=2),), "a")
    play.ok("a", "1")
    play.ok("a", "2")
    assert (play.run.cause, play.run.state) == ("LOOP_EXHAUSTED", RunState.COMPENSATING)


def test_a_person_may_allow_another_round() -> None:
    answers = [False, False, True]
    play = branching(
        lambda a, b: (
            loop(a, until=lambda v: answers.pop(0), at_most=2, on_failure=Then.PERSON, name="fix"),
            b,
        ),
        "ab",
    )
    play.ok("a", "1")
    play.ok("a", "2")
    assert play.run.code == "LOOP_EXHAUSTED"
    play.act("retry", "fix")
    play.ok("a", "3")
    assert play.open() == {"b"}


def test_loops_within_loops() -> None:
    inner, outer = [False, True, True], [False, True]
    play = branching(
        lambda a, b: (
            loop(
                loop(a, until=lambda v: inner.pop(0), at_most=3), b, until=lambda v: outer.pop(0), at_most=2
            ),
        ),
        "ab",
    )
    for name, number in [("a", "1.1"), ("a", "1.2"), ("b", "1"), ("a", "2.1"), ("b", "2")]:
        assert play.open() == {name}
        play.ok(name, number)
    assert play.state_now() is RunState.SUCCEEDED


def test_work_that_is_not_good_enough_goes_round_and_is_bounded() -> None:
    """A quality failure ends the round at once; what comes after it in the body is not run, and `until` not asked."""
    play = branching(lambda a, b, c, d: (loop(a, b, c, until=lambda v: True, at_most=3), d), "abcd")
    play.ok("a", "1")
    play.begin("b", "1")
    play.end("b", "1", verdict="quality", code="TOO_SHORT")
    assert play.open() == {"a"}
    assert play.row("loop_1", "1").result == {"done": False, "because": "b"}
    for name in "abc":
        play.ok(name, "2")
    assert play.open() == {"d"}


def test_work_that_is_never_good_enough_fails() -> None:
    play = branching(lambda a: (loop(a, until=lambda v: True, at_most=2),), "a")
    for number in "12":
        play.begin("a", number)
        play.end("a", number, verdict="quality", code="TOO_SHORT")
    assert (play.state_now(), play.run.cause) == (RunState.FAILED, "LOOP_EXHAUSTED")


def test_what_runs_beside_work_that_is_not_good_enough_ends_first() -> None:
    play = branching(lambda a, b: (loop(all_of(a, b), until=lambda v: True, at_most=2),), "ab")
    play.begin("a", "1")
    play.begin("b", "1")
    play.end("b", "1", verdict="quality", code="TOO_SHORT")
    assert play.open() == {"a"}
    play.end("a", "1")
    assert sorted(step.iteration for step in play.run.steps if step.finished_at is None) == ["2", "2"]


def test_a_round_reads_what_the_round_before_left() -> None:
    seen = []
    saga = new_saga()
    fix, test = add_step(saga, "fix"), add_step(saga, "test")

    def done(view: Any) -> bool:
        seen.append(view.result(test).id)
        return bool(view.result(test).id == "good")

    saga.flow(loop(fix, test, until=done, at_most=3))
    play = Branches(saga.definition)
    for number, result in (("1", "bad"), ("2", "good")):
        play.ok("fix", number)
        play.ok("test", number, {"id": result})
    assert seen == ["bad", "good"]
    assert play.state_now() is RunState.SUCCEEDED


def test_a_person_is_called_while_other_branches_go_on() -> None:
    saga = new_saga()
    a = add_step(saga, "a", Repeat.NEVER, retry=ONCE)
    b, c = add_step(saga, "b"), add_step(saga, "c")
    saga.flow(all_of(a, sequence(b, c)))
    play = Branches(saga.definition)
    play.begin("a")
    play.end("a", verdict="unknown")
    assert play.state_now() is RunState.MANUAL_REQUIRED
    play.ok("b")
    play.ok("c")
    assert play.state_now() is RunState.MANUAL_REQUIRED
    play.act("mark_succeeded", "a", {"id": "a"})
    assert play.state_now() is RunState.SUCCEEDED


def test_a_wait_beside_a_step() -> None:
    saga = new_saga()
    a = add_step(saga, "a")
    wait = saga.wait("w", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.CANCEL)
    saga.flow(all_of(a, wait))
    play = Branches(saga.definition)
    play.begin("a")
    assert play.state_now() is RunState.RUNNING
    play.wake("w")
    assert play.state_now() is RunState.CANCEL_REQUESTED
    play.end("a")
    assert play.state_now() is RunState.CANCELLED


def test_a_run_only_waits_when_nothing_else_is_live() -> None:
    saga = new_saga()
    a = add_step(saga, "a")
    wait = saga.wait("w", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    saga.flow(all_of(a, wait))
    play = Branches(saga.definition)
    play.ok("a")
    assert play.state_now() is RunState.WAITING


# --- what makes no sense --------------------------------------------------------------------------------


def compiled(make: Any, names: str, **options: Any) -> Definition:
    saga = new_saga()
    saga.flow(*make(*steps(saga, names, **options)))
    return saga.definition


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("MP131", lambda a: (a, all_of())),
        ("MP132", lambda a: (at_least(2, a),)),
        ("MP133", lambda a: (loop(a, until=lambda v: True, at_most=0),)),
        ("MP134", lambda a: (when("yes", a),)),  # type: ignore[arg-type]
        ("MP110", lambda a: (all_of(a, a),)),
        ("MP110", lambda a: (when(lambda v: True, a, name="a"),)),
    ],
)
def test_mistakes(code: str, make: Any) -> None:
    with pytest.raises(DefinitionError) as raised:
        compiled(make, "a")
    assert raised.value.code == code


def test_an_irreversible_step_beside_one_that_compensates_is_refused() -> None:
    saga = new_saga()
    a, b = add_step(saga, "a", irreversible=True), add_step(saga, "b", undo=True)
    with pytest.raises(DefinitionError, match=r"MP103.*b beside it would compensate"):
        saga.flow(all_of(a, b))


def test_the_fingerprint_of_a_plain_sequence_is_what_it_was() -> None:
    """A run that is open keeps its definition; nesting is pinned, too."""
    flat, nested = compiled(lambda a, b: (a, b), "ab"), compiled(lambda a, b: (all_of(a, b),), "ab")
    assert planting.pinned(flat.flow) is None
    assert flat.shape != nested.shape
    assert nested.flow_text == "(a | b)"


def test_poor_work_of_two_branches_ends_their_round_once() -> None:
    play = branching(lambda a, b, c: (loop(all_of(a, b), c, until=lambda v: True, at_most=2),), "abc")
    for name in "ab":
        play.begin(name, "1")
    play.end("a", "1", verdict="quality")
    play.end("b", "1", verdict="quality")
    assert [s.iteration for s in play.run.steps if s.name == "loop_1"] == ["1"]
    assert play.row("loop_1", "1").result == {"done": False, "because": "a"}
    for name in "ab":
        play.ok(name, "2")
    play.ok("c", "2")
    assert play.state_now() is RunState.SUCCEEDED
