"""What is known of a run without reading it: after which changes, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from milepost.consumers.known import LONGEST, known_after
from milepost.consumers.store import Loaded
from milepost.sagas.model import Decision, Run, Step
from milepost.schemas.states import StepKind, StepState

from tests.support.sagas import add_step, new_run, new_saga

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLAIMED = Step(
    name="pay",
    kind=StepKind.STEP,
    state=StepState.RUNNING,
    since=NOW,
    worker=UUID(int=1),
    fence=1,
    wake_at=NOW,
)
DONE = Step(name="pack", kind=StepKind.STEP, state=StepState.SUCCEEDED, since=NOW)


def run_with(*steps: Step) -> Run:
    saga = new_saga()
    saga.flow(add_step(saga, "pay"))
    return replace(new_run(saga.definition), version=7, steps=steps)


def after(run: Run, claimed: Step | None = CLAIMED) -> Loaded | None:
    """What is known a moment after a decision was stored."""
    before = Loaded(replace(run, steps=()), "shop", NOW - timedelta(hours=1), {})
    known = known_after(before, Decision(answer="changed", run=run, claimed=claimed), NOW, 99.75, 100.0)
    return None if known is None else known.here(100.25)


def test_a_run_with_one_claimed_step_is_known_as_it_was_stored() -> None:
    found = after(run_with(DONE, CLAIMED))
    assert found is not None
    assert found.run == replace(run_with(DONE, CLAIMED), version=8), "storing it has moved its version"
    assert found.now == NOW + timedelta(seconds=0.25), "the database's clock goes on"
    assert found.service == "shop"


def test_what_can_change_without_moving_the_version_is_not_known() -> None:
    wait = Step(name="paid", kind=StepKind.WAIT, state=StepState.WAITING, since=NOW, wake_at=NOW)
    assert after(run_with(wait, CLAIMED)) is None, "its signal may come"
    assert after(replace(run_with(CLAIMED), resource="ship:1")) is None, "the lock may pass on"
    assert after(run_with(CLAIMED), None) is None, "nobody here goes on with it"


def test_the_databases_clock_is_asked_again_after_a_while() -> None:
    before = Loaded(run_with(), "shop", NOW, {})
    known = known_after(
        before, Decision(answer="changed", run=run_with(CLAIMED), claimed=CLAIMED), NOW, 99.75, 100.0
    )
    assert known is not None
    assert known.here(100.0 + LONGEST) is not None
    assert known.here(100.1 + LONGEST) is None


def test_the_databases_clock_is_not_known_from_an_answer_that_took_long() -> None:
    """A process that stood still meanwhile would go by a time that has passed, and its next step would be overdue."""
    before = Loaded(run_with(), "shop", NOW, {})
    decision = Decision(answer="changed", run=run_with(CLAIMED), claimed=CLAIMED)
    assert known_after(before, decision, NOW, 100.0, 100.0 + LONGEST) is not None
    assert known_after(before, decision, NOW, 100.0, 100.1 + LONGEST) is None
