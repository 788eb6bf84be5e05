"""Cancel and compensate: a person stops a run at a safe boundary, and has what was done undone or not.

Nothing new begins. What is under way may finish, and its outcome is recorded; until then the run is CANCEL_REQUESTED
and its `cause` says whether undo was asked for. An undo that has begun is never cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState
from . import standing, stopping, undoing
from .draft import Draft
from .facts import Act
from .model import Decision, Run, Step
from .words import BY_PERSON, CANCELLED, CANCELLED_NO_UNDO, CANCELS

_UNDOING = frozenset({RunState.COMPENSATING, RunState.COMPENSATION_FAILED})


def done(run: Run) -> tuple[str, ...]:
    """Return the names of the steps that have succeeded, in order of completion."""
    finished = [step for step in run.steps if step.state is StepState.SUCCEEDED]
    return tuple(step.name for step in sorted(finished, key=lambda step: step.finish_no or 0))


def note_act(draft: Draft, fact: Act, step: Step | None = None, **more: object) -> None:
    """Add the history row of an act: who, why, and what else there is to say."""
    happened = True if fact.did_not_happen else None
    draft.note(f"act.{fact.what}", step, by=fact.by, reason=fact.reason, did_not_happen=happened, **more)


def cancel(draft: Draft, fact: Act) -> Decision:
    """Stop the run, at once or as soon as nothing is under way; who comes second is told who was first."""
    run = draft.run
    cause = CANCELLED if fact.undo else CANCELLED_NO_UNDO
    if run.state is RunState.CANCELLED:
        return draft.ignored("the run is CANCELLED already")
    if run.state is RunState.CANCEL_REQUESTED and run.cause == cause:
        return draft.ignored(f"this has been asked for already; under way: {_names(_live(run))}")
    problem = _too_late(run, undo=fact.undo) or (_unsettled(draft, fact) if fact.undo else "")
    if problem:
        return draft.refused(problem)
    in_doubt = [step.name for step in run.steps if step.doubt] or None
    note_act(draft, fact, undo=fact.undo, done=list(done(run)), in_doubt=in_doubt)
    draft.move_run(RunState.CANCEL_REQUESTED, cause=cause, code=None)
    for step in waiting_for_person(run):
        _give_up(draft, fact, step)
    stopping.halt(draft)
    undoing.proceed(draft)
    return draft.decision()


def _too_late(run: Run, *, undo: bool) -> str:
    """Say why the run can no longer be cancelled, or not like this; '' when it can."""
    if run.state in FINAL_RUN_STATES:
        return f"the run was faster: it has ended as {run.state}"
    if run.state in _UNDOING or _has_undo(run):
        return "what was done is being undone, and an undo is never cancelled"
    if run.state is RunState.CANCEL_REQUESTED:
        how = "with" if run.cause == CANCELLED else "without"
        return f"somebody was faster: the run is being cancelled {how} undo; under way: {_names(_live(run))}"
    if run.state is RunState.MANUAL_REQUIRED and not (
        run.cause in {None, CANCELLED_NO_UNDO} or _asked(run, undo)
    ):
        return (
            f"the run is stopping already because of {run.cause}, and what was done will be undone. "
            f"Say what became of {_names(_live(run))} instead"
        )
    return ""


def _asked(run: Run, undo: bool) -> bool:
    """Whether undo was asked for before, and is again; without it the wish of the first would be lost."""
    return undo and run.cause == CANCELLED


def compensate(draft: Draft, fact: Act) -> Decision:
    """Undo what was done of a run in front of a person, as after a failure."""
    run = draft.run
    problem = _not_held(run) or _unsettled(draft, fact)
    if problem:
        return draft.refused(problem)
    rows = waiting_for_person(run)
    if fact.step is not None and fact.step not in {step.name for step in rows}:
        return draft.refused(f"{fact.step} does not wait for a person; what does: {_names(rows)}")
    note_act(draft, fact, done=list(done(run)))
    for step in rows:
        ended = draft.move(_settled(step, fact), StepState.FAILED)
        draft.note("step.failed", ended, code=ended.code)
    stopping.halt(draft)
    code = _why(run, rows)
    if not stopping.turn_round(draft, code):
        if run.cause in CANCELS:
            draft.move_run(RunState.CANCEL_REQUESTED, cause=CANCELLED, code=None)
            undoing.proceed(draft)
        else:
            undoing.fail_run(draft, code)
    return draft.decision()


def _not_held(run: Run) -> str:
    """Say why the run cannot be turned round by hand; '' when it can."""
    if run.state is RunState.MANUAL_REQUIRED:
        return f"what was done is being undone already; {_names(_live(run))}" if _has_undo(run) else ""
    if run.state is RunState.COMPENSATION_FAILED:
        return f"the undo stopped at {_names(_live(run))}: retry it, skip it, or mark it as succeeded"
    if run.state is RunState.COMPENSATING:
        return "what was done is being undone already"
    if run.state is RunState.CANCEL_REQUESTED:
        return f"the run is being cancelled; under way: {_names(_live(run))}"
    return f"the run is {run.state} and waits for nobody. To stop and undo it, cancel it with undo"


def _why(run: Run, rows: Iterable[Step]) -> str:
    """Return the code that the run stops with: that by which it was stopping already, else that of the step."""
    if run.cause is not None:
        return CANCELLED if run.cause == CANCELLED_NO_UNDO else run.cause
    return next((step.code for step in rows if step.code), None) or run.code or BY_PERSON


def _unsettled(draft: Draft, fact: Act) -> str:
    """Say what only the person can know before anything is undone; '' when nothing."""
    for step in [] if fact.did_not_happen else waiting_for_person(draft.run):
        node = draft.definition.node(step.name)
        known = node is None or stopping.undone_blindly(node) or not (node.undo or node.irreversible)
        if step.doubt and not known:
            return (
                f"{step.name} may have taken effect, and that has to be known before anything is undone. If it did "
                "not, say that it did not happen; if it did, mark it as succeeded first, and then cancel with undo"
            )
    return ""


def go_back(draft: Draft) -> None:
    """Take a run from in front of a person to where it was: going forward, or stopping."""
    run = draft.run
    if run.state is RunState.COMPENSATION_FAILED or _has_undo(run):
        draft.move_run(RunState.COMPENSATING, code=None)
    elif run.cause is None:
        draft.move_run(RunState.RUNNING, code=None)
    else:
        state = RunState.CANCEL_REQUESTED if run.cause in CANCELS else RunState.COMPENSATING
        draft.move_run(state, code=None)


def waiting_for_person(run: Run) -> tuple[Step, ...]:
    """Return the rows that stand in front of a person."""
    states = {StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED}
    return tuple(step for step in run.steps if step.state in states)


def _give_up(draft: Draft, fact: Act, step: Step) -> None:
    """End a step that a person was asked about: CANCELLED, or FAILED when it keeps its doubt, or what items did."""
    settled = _settled(step, fact)
    stays = settled.doubt or standing.partly_done(settled)
    draft.move(settled, StepState.FAILED if stays else StepState.CANCELLED)


def _settled(step: Step, fact: Act) -> Step:
    return replace(step, doubt=False, doubt_at=None) if fact.did_not_happen else step


def _has_undo(run: Run) -> bool:
    return any(step.kind is StepKind.UNDO for step in run.steps)


def _live(run: Run) -> tuple[Step, ...]:
    return tuple(step for step in run.steps if step.state not in FINAL_STEP_STATES)


def _names(steps: Iterable[Step]) -> str:
    return ", ".join(f"{step.name} {step.state}" for step in steps) or "nothing"
