"""What nobody knows yet: asking a machine, or a person; and whether it has to be known before a run can stop."""

from __future__ import annotations

from ..schemas.states import StepState
from .definition import Node
from .draft import Draft
from .model import Step
from .words import CANCELLED_NO_UNDO


def must_be_known(draft: Draft, node: Node) -> bool:
    """Whether a stopping run has to know what became of a doubtful try before it goes on: it could not undo it.

    Where nothing is to be undone, only a probe is asked: to repeat the call could do what nobody wants any more.
    """
    if undoes_nothing(draft):
        return node.probe is not None
    has_undo = node.undo is not None and not node.undo.blind
    return node.probe is not None or node.irreversible or has_undo


def undoes_nothing(draft: Draft) -> bool:
    """Whether a stopping run leaves what was done as it is."""
    return draft.run.no_undo or draft.run.cause == CANCELLED_NO_UNDO


def unknown(draft: Draft, step: Step) -> None:
    """Ask what became of it, as soon as a worker is free."""
    asked = draft.move(step, StepState.UNKNOWN, wake_at=draft.first_nudge(), probes=0)
    draft.note("step.unknown", asked, code=step.code)
    draft.announce(asked)


def person(draft: Draft, step: Step, code: str, message: str | None) -> None:
    """Put the step, and with it the run, in front of a person."""
    held = draft.move(step, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), code=code, message=message)
    draft.note("step.manual_required", held, code=code, message=message)
