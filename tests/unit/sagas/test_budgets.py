"""Budgets in the state machine: what counts, what stops, and what a person grants."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from milepost import Budget, BudgetExceeded, DefinitionError, UsageError
from milepost.sagas import budgets
from milepost.sagas.facts import Act, Claim, ProbeAbsent, Probed, Succeeded, TryFailed
from milepost.sagas.purse import Purse
from milepost.schemas.options import Repeat
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import NOW, SECOND, WORKER, Play, add_step, flow, new_saga


def playing(run: Budget | None = None, step: Budget | None = None, repeat: Repeat = Repeat.SAFE) -> Play:
    """A run of two steps; the budget of a step is the first's."""
    saga = new_saga()
    saga.budget = run
    first = add_step(saga, "think", repeat, undo=True, probe=repeat is Repeat.ASK_FIRST)
    first.budget = step
    add_step(saga, "write", undo=True)
    return Play(flow(saga))


def spend(play: Play, name: str, **amounts: Any) -> None:
    """Let a step succeed that has spent."""
    fence = play.claim(name).fence
    play.send(
        Succeeded(
            name, fence, {"id": name}, spent=budgets.written({n: Decimal(v) for n, v in amounts.items()})
        )
    )


def retry(play: Play, name: str, **budget: Any) -> Any:
    return play.send(Act("retry", "ann", "look", name, budget={n: str(v) for n, v in budget.items()} or None))


def purse(play: Play, name: str) -> Purse:
    node = play.definition.node(name)
    assert node is not None
    return Purse(play.definition, node, play.run, play.step(name))


def test_a_step_begins_while_the_run_is_within_its_budget_and_stops_before_it_when_over() -> None:
    play = playing(Budget(tokens=100))
    spend(play, "think", tokens=101)
    assert play.state("think") is StepState.SUCCEEDED, "what is done is done"
    decision = play.send(Claim("write", WORKER))
    assert decision.claimed is None
    step = play.step("write")
    assert (step.state, step.code, step.attempt, step.doubt) == (
        StepState.MANUAL_REQUIRED,
        "BUDGET_EXCEEDED",
        0,
        False,
    )
    assert step.message == "the run's budget of tokens 100 is used up: tokens 101"
    assert play.run.state is RunState.MANUAL_REQUIRED
    assert play.run.code == "BUDGET_EXCEEDED"


def test_a_person_grants_more_and_the_run_goes_on() -> None:
    play = playing(Budget(tokens=100))
    spend(play, "think", tokens=150)
    play.send(Claim("write", WORKER))
    assert retry(play, "write").answer == "refused"
    assert "tokens 150. Grant more with the retry" in play.last.reason
    assert retry(play, "write", tokens=10).answer == "refused", "not enough"
    assert retry(play, "write", tokens=60).answer == "changed"
    assert play.run.state.value == "RUNNING"
    play.claim("write")
    assert purse(play, "write").left == Budget(tokens=10)
    play.send(Succeeded("write", play.step("write").fence, {"id": "w"}))
    assert play.run.state is RunState.SUCCEEDED


def test_tries_and_steps_are_counted_over_retries_and_acts() -> None:
    play = playing(Budget(attempts=2))
    play.fail("think", "retry")
    play.retry("think")
    play.fail("think", "retry")
    play.retry("think")
    play.send(Claim("think", WORKER))
    assert play.step("think").message == "the run's budget of attempts 2 is used up: attempts 2"
    retry(play, "think", attempts=1)
    assert play.step("think").attempt == 0, "begun anew"
    play.succeed("think")
    play.send(Claim("write", WORKER))
    assert play.state("write") is StepState.MANUAL_REQUIRED, "three tries were made in all"
    one = playing(Budget(steps=1))
    one.succeed("think")
    one.send(Claim("write", WORKER))
    assert one.step("write").code == "BUDGET_EXCEEDED"


def test_what_failed_lost_and_handed_back_tries_have_spent_counts() -> None:
    play = playing(Budget(tokens=1000, attempts=10, runtime=timedelta(hours=1)))
    fence = play.claim("think").fence
    play.now += 10 * SECOND
    play.send(TryFailed("think", fence, "retry", "NO", "no", spent={"tokens": "300"}))
    play.retry("think")
    claimed = play.claim("think")
    heard = replace(claimed, spending={"fence": claimed.fence, "spent": {"tokens": "50"}})
    play.run = replace(play.run, steps=tuple(heard if s.name == "think" else s for s in play.run.steps))
    play.now += 5 * SECOND
    play.lose("think")
    assert budgets.spent_by(play.run) == {"tokens": 350, "attempts": 2, "runtime": 15, "steps": 1}
    before = budgets.spent_by(play.run)
    play.claim("think")
    play.hand_back("think")
    assert budgets.spent_by(play.run) == before, "a try that was not begun is none"


def test_who_spends_too_much_stands_in_front_of_a_person_in_doubt() -> None:
    play = playing(step=Budget(tokens=100), repeat=Repeat.ASK_FIRST)
    fence = play.claim("think").fence
    play.send(TryFailed("think", fence, "unknown", "MP360", "x", spent={"tokens": "101"}, over="too much"))
    step = play.step("think")
    assert (step.state, step.code, step.doubt) == (StepState.MANUAL_REQUIRED, "BUDGET_EXCEEDED", True)
    assert retry(play, "think", tokens=50).answer == "refused", "it may have taken effect"
    assert budgets.spent_by(play.run)["tokens"] == 101
    play.send(Act("retry", "ann", "looked", "think", did_not_happen=True, budget={"tokens": "50"}))
    play.claim("think")
    assert purse(play, "think").left.tokens == 150, "each try has the step's budget, and what was granted"


def test_a_purse_stops_who_spends_more_than_the_less_of_both_budgets() -> None:
    play = playing(Budget(cost=Decimal("1.00")), Budget(tokens=10, runtime=timedelta(seconds=3)))
    play.claim("think")
    it = purse(play, "think")
    assert it.left == Budget(tokens=10, cost=Decimal("1.00"), runtime=timedelta(seconds=3))
    assert it.runtime == timedelta(seconds=3)
    it.spend(tokens=10, cost=Decimal("0.3"))
    assert it.left == Budget(tokens=0, cost=Decimal("0.70"), runtime=timedelta(seconds=3))
    with pytest.raises(
        BudgetExceeded, match=r"MP360 order/o-1, step think: the run's budget left cost 1, and"
    ):
        it.spend(cost=Decimal("0.71"))
    assert it.spent == {"tokens": "10", "cost": "1.01"}, "what was spent is spent"


def test_undos_and_probes_are_counted_and_never_stopped() -> None:
    play = playing(Budget(tokens=10), repeat=Repeat.ASK_FIRST)
    play.fail("think", "unknown")
    play.claim("think")
    it = purse(play, "think")
    it.spend(tokens=500)
    assert it.runtime is None
    play.send(Probed("think", play.step("think").fence, ProbeAbsent(), spent=it.spent))
    assert budgets.spent_by(play.run)["tokens"] == 500


@pytest.mark.parametrize(
    "wrong", [{"tokens": -1}, {"tokens": 1.5}, {"cost": 0.1}, {"tool_calls": True}, {"cost": Decimal("NaN")}]
)
def test_amounts_that_cannot_be_counted_are_refused(wrong: dict[str, Any]) -> None:
    play = playing()
    play.claim("think")
    with pytest.raises(UsageError, match="MP359"):
        purse(play, "think").spend(**wrong)


@pytest.mark.parametrize(
    ("run", "step", "words"),
    [
        (Budget(tokens=0), None, "order v1: a budget of tokens 0 lets nothing begin"),
        (None, Budget(cost=Decimal(-1)), "step think: a budget of cost -1"),
        (None, Budget(attempts=3), "a step's budget counts for one try"),
    ],
)
def test_budgets_that_cannot_be_meant_are_refused(
    run: Budget | None, step: Budget | None, words: str
) -> None:
    with pytest.raises(DefinitionError, match=f"MP126 .*{words}"):
        playing(run, step)


def test_a_step_may_not_call_its_own_failure_so() -> None:
    play = playing()
    play.fail("think", "fatal", code="BUDGET_EXCEEDED")
    assert play.step("think").code == "STEP_BUDGET_EXCEEDED"
    assert play.now == NOW
