"""What is known of a run without reading it: after which changes, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from milepost.consumers.known import LONGEST, MOST, Known, Memory, known_after
from milepost.consumers.rows import Loaded
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
SENT = Step(name="book", kind=StepKind.COMMAND, state=StepState.WAITING, since=NOW, attempt=1, wake_at=NOW)
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
    assert after(run_with(wait, SENT), None) is None
    assert after(replace(run_with(SENT), resource="ship:1"), None) is None


def test_a_run_that_waits_for_the_reply_to_one_command_is_known() -> None:
    found = after(run_with(DONE, SENT), None)
    assert found is not None and found.run.version == 8


def test_runs_that_wait_for_replies_are_remembered_for_a_while_and_once() -> None:
    def known(n: int, at: float) -> Known:
        return Known(Loaded(replace(run_with(SENT), id=UUID(int=n)), "shop", NOW, {}), at)

    memory, first, newer = Memory(), known(1, 10.0), known(1, 10.5)
    memory.keep(first)
    memory.keep(newer)
    assert memory.take(UUID(int=1)) is newer
    assert memory.take(UUID(int=1)) is None, "what is done on it changes it"
    memory.keep(known(2, 11.0))
    memory.keep(known(3, 11.5))
    memory.keep(known(4, 12.2))
    assert memory.take(UUID(int=2)) is None, "it is too old to be used"
    assert memory.take(UUID(int=3)) is not None
    for n in range(10, 10 + MOST + 5):
        memory.keep(known(n, 12.3))
    assert [memory.take(UUID(int=n)) is None for n in (10, 14, 15)] == [True, True, False]


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
