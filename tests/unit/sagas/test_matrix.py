"""Every state meets every fact: an answer each time, and never an exception."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from milepost.sagas.decide import decide, then_claim
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Fact
from milepost.sagas.model import Run, Step
from milepost.sagas.transitions import fits
from milepost.sagas.words import CANCELLED, CANCELLED_NO_UNDO
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState

from tests.support.allsagas import DEFINITIONS, acts, answers, facts
from tests.support.sagas import (
    HOUR,
    LIMITS,
    NOW,
    OTHER,
    WORKER,
    check_decision,
    new_run,
)

HELD = {StepState.RUNNING, StepState.RECONCILING, StepState.COMPENSATING}


#: A question as its row keeps it, with another hash than that of any run here.
ASKED = {
    "generation": 1,
    "risk": "HIGH",
    "needed": 2,
    "roles": ["boss"],
    "hash": "0",
    "params": None,
    "open": True,
    "given": [{"by": "ann", "roles": [], "reason": "because", "at": "2026-01-01T00:00:00+00:00"}],
}


def rows(name: str, kind: StepKind, undo_of: str | None) -> Iterator[Step]:
    """A row in every state, with and without doubt, tries left, a signal, and a question."""
    asking = kind is StepKind.APPROVAL or (kind is StepKind.UNDO and name == "undo_it")
    for row in _rows(name, kind, undo_of):
        yield row
        if asking and not row.doubt:
            yield replace(row, asked=ASKED)


def _rows(name: str, kind: StepKind, undo_of: str | None) -> Iterator[Step]:
    for state, doubt, attempt, signal in itertools.product(
        StepState, (False, True), (1, 2), (None, {"id": "s"})
    ):
        if (signal is not None and kind is not StepKind.WAIT) or (
            state in FINAL_STEP_STATES and attempt == 2
        ):
            continue
        yield Step(
            name=name,
            kind=kind,
            state=state,
            since=NOW,
            undo_of=undo_of,
            attempt=attempt,
            fence=3,
            generation=4,
            worker=WORKER if state in HELD else None,
            wake_at=None if state in FINAL_STEP_STATES else NOW,
            doubt=doubt,
            doubt_at=NOW - 2 * HOUR if attempt == 2 else NOW,
            result={"id": "x"} if state is StepState.SUCCEEDED else None,
            finish_no=2 if state is StepState.SUCCEEDED else None,
            first_at=NOW,
            started_at=NOW,
            signal=signal,
        )


def runs(definition: Definition, row: Step) -> Iterator[Run]:
    before = Step(
        name="before",
        kind=StepKind.STEP,
        state=StepState.SUCCEEDED,
        since=NOW,
        result={"id": "b"},
        finish_no=1,
        finished_at=NOW,
    )
    # A run is RUNNING and not WAITING while something goes on beside a wait.
    beside = replace(
        before,
        state=StepState.RUNNING,
        result=None,
        finish_no=None,
        finished_at=None,
        wake_at=NOW,
        worker=WORKER,
    )
    for state in RunState:
        final = state in FINAL_RUN_STATES
        other = beside if state is RunState.RUNNING and row.kind is StepKind.WAIT else before
        steps = (other, row) if definition.node("before") is not None and row.undo_of != "before" else (row,)
        yield replace(
            new_run(definition),
            state=state,
            finish_n=2,
            wake_at=None if final else NOW,
            finished_at=NOW if final else None,
            cause="CAUSE",
            steps=steps,
        )


def going(found: Iterator[Run]) -> Iterator[Run]:
    """The runs, and those that an act takes back to where they had been going in every such way."""
    for run in found:
        yield run
        if run.state in {RunState.MANUAL_REQUIRED, RunState.CANCEL_REQUESTED}:
            yield from (replace(run, cause=cause) for cause in (None, CANCELLED, CANCELLED_NO_UNDO))


def said(definition: Definition, row: Step, n: int) -> Iterator[tuple[Run, Fact]]:
    """Every fact in every state of the run.

    A row that cannot be in a run of that state is refused whatever the fact says: there the facts are shared out among
    the four rows at least that differ only in doubt and tries.
    """
    for run in runs(definition, row):
        share = slice(None) if fits(run.state, row) else slice(n % 4, None, 4)
        yield from ((run, fact) for fact in facts(row)[share])
    if row.attempt == 1:
        for run in going(runs(definition, row)):
            share = slice(None) if fits(run.state, row) else slice(row.doubt, None, 2)
            yield from ((run, act) for act in (*acts(row.name), *answers(row))[share])


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if not name.endswith(("-FAIL", "-PERSON"))])
def test_every_state_answers_every_fact(name: str) -> None:
    definition = DEFINITIONS[name]
    node = definition.node("it")
    assert node is not None
    kinds = [("it", node.kind, None)] + ([(node.undo.name, StepKind.UNDO, "it")] if node.undo else [])
    answers = set()
    for n, row in enumerate(row for kind in kinds for row in rows(*kind)):
        for run, fact in said(definition, row, n):
            decision = decide(definition, run, fact, NOW, dice=0.5, limits=LIMITS)
            answers.add(decision.answer)
            assert decision.answer == "changed" or decision.reason
            check_decision(run, decision)
            folded = then_claim(definition, decision, OTHER, NOW, queue="default", limits=LIMITS)
            assert folded.run.state in RunState
    assert answers == {"changed", "ignored", "refused"}
