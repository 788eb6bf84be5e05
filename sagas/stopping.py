"""The safe boundary: how a run stops going forward for another reason than a failure.

What is under way may finish, what may have happened is settled first, waits are closed, and what nobody has begun is
CANCELLED. Undo comes afterwards (undoing.py), and begins when no row is live any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..schemas.codecs import Unreadable
from ..schemas.reading import brought_up
from ..schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState
from . import children, doubting, standing, undoing, waits
from .changing import replace
from .definition import Node
from .draft import Draft
from .model import Json, Step

_UNBEGUN = frozenset({StepState.PENDING, StepState.RETRY_PENDING})


def halt(draft: Draft) -> None:
    """Bring every row to the safe boundary; rows that a machine has to settle first stay live.

    Live afterwards are: RUNNING, UNKNOWN and RECONCILING steps, undos, and a step in front of a person because nobody
    else can know what became of it.
    """
    for step in draft.run.steps:
        give_up(draft, step)


def give_up(draft: Draft, step: Step) -> None:
    """Bring one row to the safe boundary; one that is final, or an undo, stays as it is."""
    node = draft.definition.node(step.name)
    if step.state in FINAL_STEP_STATES or step.kind is StepKind.UNDO or node is None:
        return
    if step.kind is StepKind.WAIT:
        _end_wait(draft, node, step)
    elif step.kind in {StepKind.TIMER, StepKind.APPROVAL}:
        draft.move(step, StepState.CANCELLED)
    elif step.kind in {StepKind.CHILD, StepKind.EACH} and step.state is StepState.WAITING:
        children.give_up(draft, step)
    elif step.state in _UNBEGUN or step.state is StepState.MANUAL_REQUIRED:
        let_go(draft, node, step)
    elif step.state is StepState.UNKNOWN and _asked_by_the_call_itself(draft, node):
        draft.move(step, StepState.FAILED)


def _asked_by_the_call_itself(draft: Draft, node: Node) -> bool:
    """Whether finding out would repeat the call although nothing is to be undone, so that nobody wants it any more."""
    return doubting.undoes_nothing(draft) and not doubting.must_be_known(draft, node)


def let_go(draft: Draft, node: Node, step: Step) -> None:
    """End a step that nobody works on, unless what its tries may have done has to be known first.

    One in doubt is asked about. Where nobody can be asked, or its undo is blind, it is FAILED and keeps its doubt;
    but where a person has been asked, only a blind undo makes the answer needless.
    """
    if not step.doubt:
        draft.move(step, StepState.FAILED if standing.partly_done(step) else StepState.CANCELLED)
    elif step.state is StepState.MANUAL_REQUIRED:
        if undone_blindly(node):
            draft.move(step, StepState.FAILED)
    elif doubting.must_be_known(draft, node):
        doubting.unknown(draft, step)
    else:
        draft.move(step, StepState.FAILED)


def undone_blindly(node: Node) -> bool:
    """Whether the step's undo runs without knowing whether the step took effect."""
    return node.undo is not None and node.undo.blind


def _end_wait(draft: Draft, node: Node, step: Step) -> None:
    """Close a wait; one whose event is there already is satisfied by it, for no event may get lost."""
    if waits.is_open(step) and step.signal is not None:
        payload = _event(node, step, step.signal)
        if payload is not None:
            done = draft.finish(step, StepState.SUCCEEDED, result=payload, doubt=False, doubt_at=None)
            draft.note("step.completed", done)
            return
    else:
        waits.close(draft, step)
    draft.move(step, StepState.CANCELLED)


def _event(node: Node, step: Step, signal: Mapping[str, Json]) -> Json:
    """Return the event as it is stored, None when it is not of the awaited class."""
    assert node.wait is not None
    try:
        payload = brought_up(node.wait.event, dict(signal), step.signal_version)
        node.decode(payload)
    except (ValueError, Unreadable):  # pydantic's ValidationError, or what JSON cannot hold
        return None
    return payload


def stop(draft: Draft, code: str, *, undo: bool) -> None:
    """Stop going forward because of a failure: what runs beside it may finish, then the run is undone, or ends.

    Args:
        code: Of the failure.
        undo: Whether what was done is to be undone.
    """
    if not undo:
        draft.run = replace(draft.run, no_undo=True)
    halt(draft)
    if not turn_round(draft, code):
        undoing.fail_run(draft, code)


def turn_round(draft: Draft, code: str) -> bool:
    """Undo what has to be undone, or wait for what is under way.

    Returns:
        False when the run has neither: then the caller ends it.
    """
    if any(step.state not in FINAL_STEP_STATES for step in draft.run.steps) or undoing.something(draft):
        if draft.run.state is RunState.PENDING:
            draft.move_run(RunState.RUNNING)
        undoing.compensating(draft, code)
        undoing.proceed(draft)
        return True
    return False
