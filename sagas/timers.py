"""Timers: a row that waits for an instant, without a worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..schemas.states import StepKind, StepState
from . import retry
from .context import View
from .definition import Node
from .draft import Draft
from .model import Step
from .words import DUE_FAILED, clean


def begin(draft: Draft, node: Node, iteration: str) -> None:
    """Make the row of a timer that has become runnable."""
    at, problem = due(draft, node)
    values = {"iteration": iteration, "queue": node.queue, "attempt": 1}
    if at is None:
        told = {"code": DUE_FAILED, "message": problem}
        row = draft.create(
            node.name, StepKind.TIMER, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), **values, **told
        )
        draft.note("step.manual_required", row, **told)
        return
    row = draft.create(node.name, StepKind.TIMER, StepState.WAITING, wake_at=at, **values)
    draft.note("run.waiting", row, until=at.isoformat())


def due(draft: Draft, node: Node) -> tuple[datetime | None, str]:
    """Return when a timer fires and '', or None and what is wrong with it; an instant that has passed is now."""
    assert node.due is not None
    if isinstance(node.due, timedelta):
        return retry.later(draft.now, node.due), ""
    try:
        at = node.due(View(draft.definition, draft.run, reader=node.name))
        if not isinstance(at, datetime):
            return None, f"it returned {type(at).__name__}, no datetime"
        if at.utcoffset() is None:
            return None, "it returned a datetime without a time zone, so nobody could say when it is"
        return max(at.astimezone(UTC), draft.now), ""
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return None, clean(f"it raised {type(error).__name__}: {error}")


def again(draft: Draft, node: Node, step: Step) -> str:
    """Ask once more when a timer in front of a person fires; return what is wrong with the answer, or ''."""
    at, problem = due(draft, node)
    if at is not None:
        row = draft.move(step, StepState.WAITING, wake_at=at, code=None, message=None)
        draft.note("run.waiting", row, until=at.isoformat())
    return problem
