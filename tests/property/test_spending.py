"""Whatever becomes of tries, what they said they spent is counted once, and nothing begins when the budget is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost import Budget
from milepost.sagas import budgets
from milepost.sagas.facts import Act, Claim, Succeeded, TryFailed
from milepost.schemas.options import Repeat, Retry
from milepost.schemas.states import FINAL_RUN_STATES, StepState

from tests.support.sagas import WORKER, Play, add_step, flow, new_saga

outcomes = st.tuples(
    st.sampled_from(["done", "failed", "over", "lost", "lost after a heartbeat", "handed back"]),
    st.integers(0, 40),
)


@settings(max_examples=200, deadline=None)
@given(tries=st.lists(outcomes, min_size=1, max_size=25), allowed=st.integers(1, 8))
def test_what_was_said_is_counted_once_and_tries_are_bounded(
    tries: list[tuple[str, int]], allowed: int
) -> None:
    saga = new_saga()
    saga.budget = Budget(tokens=200, attempts=allowed)
    for n in range(4):
        add_step(saga, f"s{n}", Repeat.SAFE, retry=Retry(attempts=50, within=None))
    play = Play(flow(saga))
    tokens, begun, granted = 0, 0, 0
    for how, amount in tries:
        live = [s for s in play.run.steps if s.wake_at is not None]
        if play.run.state in FINAL_RUN_STATES or not live:
            break
        step = live[0]
        if step.state is StepState.RETRY_PENDING:
            play.retry(step.name)
        claim = play.send(Claim(step.name, WORKER)) if play.state(step.name) is StepState.PENDING else None
        if claim is None or claim.claimed is None:
            assert play.state(step.name) is StepState.MANUAL_REQUIRED
            assert tokens > 200 + granted or begun >= allowed + granted or play.step(step.name).doubt
            more = {"tokens": "300", "attempts": "300"}
            assert play.send(Act("retry", "ann", "go on", step.name, budget=more)).answer == "changed"
            granted += 300
            continue
        assert tokens <= 200 + granted
        assert begun < allowed + granted
        name, fence, spent = step.name, claim.claimed.fence, {"tokens": str(amount)}
        play.now += timedelta(seconds=1)
        begun, tokens = begun + 1, tokens + amount
        if how == "done":
            play.send(Succeeded(name, fence, {"id": name}, spent=spent))
        elif how in {"failed", "over"}:
            play.send(
                TryFailed(name, fence, "retry", "NO", "no", spent=spent, over=how if how == "over" else "")
            )
        elif how == "handed back":
            play.hand_back(name)
            begun, tokens = begun - 1, tokens - amount
        else:
            if how == "lost":
                tokens -= amount
            else:
                row = replace(claim.claimed, spending={"fence": fence, "spent": spent})
                play.run = replace(
                    play.run, steps=tuple(row if s.name == name else s for s in play.run.steps)
                )
            play.lose(name)
    counted = budgets.spent_by(play.run)
    assert counted.get("tokens", 0) == tokens
    assert counted.get("attempts", 0) == begun
