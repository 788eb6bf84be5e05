"""What follows when somebody has looked after a child; what was found is loaded with the row, as `Step.child`."""

from __future__ import annotations

from ..schemas.states import FINAL_RUN_STATES, WELL_ENDED, StepState
from . import advancing, children, denying, doubting, forward
from .changing import replace
from .definition import Node
from .draft import Draft
from .model import Child, Decision, Step
from .words import CHILD_STOPPING, clean


def seen(draft: Draft, node: Node, step: Step) -> Decision:
    """Answer somebody who has looked after the child."""
    if step.state is not StepState.WAITING or not _over(step.child):
        return draft.ignored(f"{step.name} is {step.state}, and nothing new is known of its child")
    _settle(draft, node, step)
    return draft.decision()


def woken(draft: Draft, node: Node, step: Step) -> Decision:
    """Look after the child again: a message may have got lost."""
    if _over(step.child):
        _settle(draft, node, step)
    else:
        row = draft.move(step, StepState.WAITING, wake_at=draft.next_nudge(step), nudges=step.nudges + 1)
        children.seek(draft, row)
    return draft.decision()


def _over(child: Child | None) -> bool:
    return child is not None and bool(child.code or child.state in FINAL_RUN_STATES)


def _settle(draft: Draft, node: Node, step: Step) -> None:
    """End the row as its child has ended, or could not begin."""
    child = step.child
    assert child is not None and node.child is not None
    saga = node.child.saga.name
    if child.state:
        draft.note("child.ended", step, child=child.id, state=child.state)
    if child.state in WELL_ENDED:
        forward.succeed(draft, step, {"id": child.id, "saga": saga, "key": child.key, "state": child.state})
        return
    code = child.code or f"CHILD_{child.state}"
    message = (
        clean(child.message or (f"{saga}/{child.key} has ended as {child.state}" if child.state else ""))
        or None
    )
    if step.code == CHILD_STOPPING:
        state = StepState.FAILED if child.state else StepState.CANCELLED
        advancing.go_on(draft, draft.move(step, state, code=code, message=message))
    elif child.code:
        doubting.person(draft, step, code, message)
    else:
        draft.note("step.failed", step, verdict="fatal", code=code, message=message)
        denying.give_in(draft, node, replace(step, code=code, message=message))
