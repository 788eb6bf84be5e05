"""The legal transitions of runs and steps, and who may cause each. Everything else is a bug.

`decide` asserts each change against these tables; `graph.states_mermaid` draws them; docs/states.md shows the drawing.

Causes: start = the run is made; worker = who holds a step, probe or undo reports; timer = `wake_at` has come;
sweep = a worker's lease has ended; signal = an awaited event is there; person = somebody says so, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from ..schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState
from .model import Step
from .standing import waits

Cause: TypeAlias = Literal["start", "worker", "timer", "sweep", "signal", "person"]
CAUSES: Final[tuple[Cause, ...]] = ("start", "worker", "timer", "sweep", "signal", "person")

_R = RunState
_S = StepState


def _by(causes: str) -> frozenset[Cause]:
    return frozenset(cause for cause in CAUSES if cause in causes.split())


RUN_TRANSITIONS: Final[Mapping[tuple[RunState, RunState], frozenset[Cause]]] = {
    (_R.PENDING, _R.RUNNING): _by("start worker timer person"),
    (_R.PENDING, _R.WAITING): _by("start timer person"),
    (_R.PENDING, _R.SUCCEEDED): _by("start timer person"),
    (_R.PENDING, _R.FAILED): _by("start timer person"),
    (_R.PENDING, _R.MANUAL_REQUIRED): _by("start worker timer person"),
    (_R.PENDING, _R.EXPIRED): _by("start worker timer person"),
    (_R.PENDING, _R.CANCEL_REQUESTED): _by("person"),
    (_R.RUNNING, _R.WAITING): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.PARTIALLY_SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.FAILED): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.COMPENSATING): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.MANUAL_REQUIRED): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.EXPIRED): _by("worker timer sweep signal person"),
    (_R.RUNNING, _R.CANCEL_REQUESTED): _by("timer person"),
    (_R.WAITING, _R.RUNNING): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.PARTIALLY_SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.FAILED): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.COMPENSATING): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.CANCELLED): _by("timer"),
    (_R.WAITING, _R.MANUAL_REQUIRED): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.EXPIRED): _by("worker timer sweep signal person"),
    (_R.WAITING, _R.CANCEL_REQUESTED): _by("timer person"),
    (_R.COMPENSATING, _R.COMPENSATED): _by("worker timer signal person"),
    (_R.COMPENSATING, _R.COMPENSATION_FAILED): _by("worker timer sweep signal person"),
    (_R.COMPENSATING, _R.FAILED): _by("worker timer sweep signal person"),
    (_R.COMPENSATING, _R.MANUAL_REQUIRED): _by("worker timer sweep signal person"),
    (_R.COMPENSATING, _R.EXPIRED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.COMPENSATING): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.EXPIRED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.CANCEL_REQUESTED): _by("timer signal person"),
    (_R.MANUAL_REQUIRED, _R.FAILED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.PARTIALLY_SUCCEEDED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.RUNNING): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.WAITING): _by("worker timer sweep signal person"),
    (_R.CANCEL_REQUESTED, _R.CANCELLED): _by("worker timer sweep signal person"),
    (_R.CANCEL_REQUESTED, _R.COMPENSATING): _by("worker timer sweep signal person"),
    (_R.CANCEL_REQUESTED, _R.MANUAL_REQUIRED): _by("worker timer sweep signal person"),
    (_R.MANUAL_REQUIRED, _R.COMPENSATION_FAILED): _by("worker timer sweep person"),
    (_R.COMPENSATION_FAILED, _R.COMPENSATING): _by("person"),
}

STEP_TRANSITIONS: Final[Mapping[tuple[StepState | None, StepState], frozenset[Cause]]] = {
    (None, _S.PENDING): _by("start worker timer sweep signal person"),
    (None, _S.WAITING): _by("start worker timer sweep signal person"),
    (None, _S.MANUAL_REQUIRED): _by("start worker timer sweep signal person"),
    (None, _S.SUCCEEDED): _by("start worker timer sweep signal person"),
    (None, _S.FAILED): _by("start worker timer sweep signal person"),
    (None, _S.COMPENSATION_PENDING): _by("worker timer sweep signal person"),
    (_S.PENDING, _S.PENDING): _by("worker timer"),
    (_S.PENDING, _S.RUNNING): _by("worker"),
    (_S.PENDING, _S.FAILED): _by("worker timer sweep signal person"),
    (_S.PENDING, _S.UNKNOWN): _by("worker timer sweep signal person"),
    (_S.PENDING, _S.MANUAL_REQUIRED): _by("worker"),
    (_S.PENDING, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.RUNNING, _S.SUCCEEDED): _by("worker"),
    (_S.RUNNING, _S.FAILED): _by("worker timer sweep"),
    (_S.RUNNING, _S.RETRY_PENDING): _by("worker"),
    (_S.RUNNING, _S.PENDING): _by("worker timer sweep"),
    (_S.RUNNING, _S.WAITING): _by("worker"),
    (_S.RUNNING, _S.UNKNOWN): _by("worker timer sweep"),
    (_S.RUNNING, _S.CANCELLED): _by("worker"),
    (_S.RUNNING, _S.MANUAL_REQUIRED): _by("worker timer sweep"),
    (_S.RETRY_PENDING, _S.PENDING): _by("timer"),
    (_S.RETRY_PENDING, _S.FAILED): _by("worker timer sweep signal person"),
    (_S.RETRY_PENDING, _S.UNKNOWN): _by("worker timer sweep signal person"),
    (_S.RETRY_PENDING, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.UNKNOWN, _S.UNKNOWN): _by("worker timer"),
    (_S.UNKNOWN, _S.RECONCILING): _by("worker"),
    (_S.UNKNOWN, _S.SUCCEEDED): _by("worker timer sweep signal person"),
    (_S.UNKNOWN, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.UNKNOWN, _S.FAILED): _by("worker timer sweep signal person"),
    (_S.UNKNOWN, _S.MANUAL_REQUIRED): _by("worker timer signal"),
    (_S.RECONCILING, _S.SUCCEEDED): _by("worker timer sweep signal person"),
    (_S.RECONCILING, _S.FAILED): _by("worker signal"),
    (_S.RECONCILING, _S.PENDING): _by("worker"),
    (_S.RECONCILING, _S.UNKNOWN): _by("worker timer sweep"),
    (_S.RECONCILING, _S.WAITING): _by("worker"),
    (_S.RECONCILING, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.RECONCILING, _S.MANUAL_REQUIRED): _by("worker timer sweep signal"),
    (_S.WAITING, _S.WAITING): _by("worker timer sweep person"),
    (_S.WAITING, _S.UNKNOWN): _by("timer"),
    (_S.WAITING, _S.SUCCEEDED): _by("worker timer sweep signal person"),
    (_S.WAITING, _S.SKIPPED): _by("timer"),
    (_S.WAITING, _S.FAILED): _by("timer signal person"),
    (_S.WAITING, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.WAITING, _S.MANUAL_REQUIRED): _by("timer signal"),
    (_S.MANUAL_REQUIRED, _S.MANUAL_REQUIRED): _by("timer signal person"),
    (_S.MANUAL_REQUIRED, _S.FAILED): _by("worker timer sweep signal person"),
    (_S.MANUAL_REQUIRED, _S.CANCELLED): _by("worker timer sweep signal person"),
    (_S.MANUAL_REQUIRED, _S.UNKNOWN): _by("person"),
    (_S.MANUAL_REQUIRED, _S.SKIPPED): _by("person"),
    (_S.MANUAL_REQUIRED, _S.SUCCEEDED): _by("signal person"),
    (_S.MANUAL_REQUIRED, _S.PENDING): _by("timer person"),
    (_S.MANUAL_REQUIRED, _S.WAITING): _by("person"),
    (_S.MANUAL_REQUIRED, _S.COMPENSATION_PENDING): _by("person"),
    (_S.MANUAL_REQUIRED, _S.COMPENSATION_FAILED): _by("person"),
    (_S.MANUAL_REQUIRED, _S.COMPENSATED): _by("person"),
    (_S.COMPENSATION_PENDING, _S.COMPENSATION_PENDING): _by("worker timer"),
    (_S.COMPENSATION_PENDING, _S.COMPENSATING): _by("worker"),
    (_S.COMPENSATION_PENDING, _S.MANUAL_REQUIRED): _by("worker"),
    (_S.COMPENSATING, _S.COMPENSATED): _by("worker"),
    (_S.COMPENSATING, _S.WAITING): _by("worker"),
    (_S.WAITING, _S.COMPENSATED): _by("signal"),
    (_S.WAITING, _S.COMPENSATION_PENDING): _by("timer"),
    (_S.WAITING, _S.COMPENSATION_FAILED): _by("timer signal"),
    (_S.COMPENSATING, _S.COMPENSATION_PENDING): _by("worker timer sweep"),
    (_S.COMPENSATING, _S.COMPENSATION_FAILED): _by("worker timer sweep"),
    (_S.COMPENSATION_FAILED, _S.COMPENSATION_FAILED): _by("timer"),
    (_S.COMPENSATION_FAILED, _S.COMPENSATION_PENDING): _by("person"),
    (_S.COMPENSATION_FAILED, _S.CANCELLED): _by("person"),
    (_S.COMPENSATION_FAILED, _S.COMPENSATED): _by("person"),
    (_S.COMPENSATION_FAILED, _S.MANUAL_REQUIRED): _by("person"),
}

#: Live states that a row of each kind can have.
_LIVE_OF_KIND: Final[Mapping[StepKind, frozenset[StepState]]] = {
    StepKind.STEP: frozenset(
        {_S.PENDING, _S.RUNNING, _S.RETRY_PENDING, _S.UNKNOWN, _S.RECONCILING, _S.MANUAL_REQUIRED}
    ),
    StepKind.TX: frozenset({_S.PENDING, _S.RUNNING, _S.RETRY_PENDING, _S.MANUAL_REQUIRED}),
    StepKind.WAIT: frozenset({_S.WAITING, _S.UNKNOWN, _S.RECONCILING, _S.MANUAL_REQUIRED}),
    StepKind.UNDO: frozenset(
        {_S.MANUAL_REQUIRED, _S.COMPENSATION_PENDING, _S.COMPENSATING, _S.WAITING, _S.COMPENSATION_FAILED}
    ),
    StepKind.COMMAND: frozenset({_S.WAITING, _S.UNKNOWN, _S.RECONCILING, _S.MANUAL_REQUIRED}),
    StepKind.TIMER: frozenset({_S.WAITING, _S.MANUAL_REQUIRED}),
    StepKind.APPROVAL: frozenset({_S.WAITING, _S.MANUAL_REQUIRED}),
    StepKind.CHILD: frozenset({_S.WAITING, _S.MANUAL_REQUIRED}),
    StepKind.EACH: frozenset({_S.PENDING, _S.RUNNING, _S.RETRY_PENDING, _S.WAITING, _S.MANUAL_REQUIRED}),
    StepKind.CHOICE: frozenset({_S.MANUAL_REQUIRED}),
    StepKind.LOOP: frozenset({_S.MANUAL_REQUIRED}),
}

_FORWARD = frozenset(
    {_S.PENDING, _S.RUNNING, _S.RETRY_PENDING, _S.UNKNOWN, _S.RECONCILING, _S.WAITING, _S.MANUAL_REQUIRED}
)
_STOPPING = frozenset({_S.RUNNING, _S.UNKNOWN, _S.RECONCILING, _S.WAITING})

#: Live states that a row can have in a run of each state; a final run has none.
_LIVE_IN_RUN: Final[Mapping[RunState, frozenset[StepState]]] = {
    _R.PENDING: frozenset({_S.PENDING}),
    _R.RUNNING: _FORWARD - {_S.MANUAL_REQUIRED},
    _R.WAITING: frozenset({_S.WAITING, _S.UNKNOWN, _S.RECONCILING}),
    _R.COMPENSATING: _STOPPING | {_S.COMPENSATION_PENDING, _S.COMPENSATING},
    _R.CANCEL_REQUESTED: _STOPPING,
    _R.MANUAL_REQUIRED: _FORWARD | {_S.COMPENSATION_PENDING, _S.COMPENSATING},
    _R.COMPENSATION_FAILED: frozenset(
        {_S.COMPENSATION_FAILED, _S.MANUAL_REQUIRED, _S.COMPENSATION_PENDING, _S.COMPENSATING, _S.WAITING}
    ),
}


_TURNED = frozenset({_R.COMPENSATING, _R.CANCEL_REQUESTED})
_UNDOING = frozenset({_R.COMPENSATING, _R.COMPENSATION_FAILED, _R.MANUAL_REQUIRED})
#: Kinds whose rows are ended as soon as a run stops.
_CLOSED = frozenset({StepKind.WAIT, StepKind.TIMER, StepKind.APPROVAL})


def fits(run: RunState, step: Step) -> bool:
    """Whether a row can be as it is in a run of this state; what does not fit was not written by `decide`."""
    if step.state in FINAL_STEP_STATES:
        return True
    if run is _R.WAITING and not waits(step):
        return False
    if run in _TURNED and step.kind in _CLOSED:
        return False
    if (run is _R.COMPENSATION_FAILED and step.kind is not StepKind.UNDO) or (
        step.kind is StepKind.UNDO and run not in _UNDOING
    ):
        return False
    return step.state in _LIVE_IN_RUN.get(run, frozenset()) and step.state in _LIVE_OF_KIND[step.kind]


def fit_together(run: RunState, steps: Iterable[Step]) -> bool:
    """Whether a run's rows can be as they are: each fits, and where an undo is said to have failed, one has."""
    live = [step for step in steps if step.state not in FINAL_STEP_STATES]
    if (
        run is _R.COMPENSATION_FAILED
        and live
        and all(step.state is not _S.COMPENSATION_FAILED for step in live)
    ):
        return False
    return all(fits(run, step) for step in live)


def check_step(before: StepState | None, after: StepState, cause: Cause) -> None:
    """Assert that a row may go from one state to the other, or be made in it (`before` None), by this cause."""
    assert cause in STEP_TRANSITIONS.get((before, after), ()), f"step {before} -> {after} by {cause}"


def check_run(before: RunState, after: RunState, cause: Cause) -> None:
    """Assert that a run may go from one state to the other by this cause."""
    assert cause in RUN_TRANSITIONS.get((before, after), ()), f"run {before} -> {after} by {cause}"


def in_order(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes in the order in which they are always shown."""
    known = set(causes)
    return [cause for cause in CAUSES if cause in known]
