"""What nobody knows yet: asking a machine, or a person; and whether it has to be known before a run can stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ..schemas.options import Repeat
from ..schemas.states import StepKind, StepState
from . import retry
from .definition import Node
from .draft import Draft
from .model import Step
from .words import CANCELLED_NO_UNDO, DATABASE_MOVED, OUTCOME_UNKNOWN

#: Said to the person who has to find out.
KEY_MEMORY = (
    "the other side may have forgotten the key of the first try, so a repetition could take effect again"
)
_MOVED = "the database has become another one, which may not know of a call that was made before"


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


def may_be_new(node: Node, step: Step, at: datetime) -> bool:
    """Whether a call begun at an instant could be a new one to the other side, although an earlier one took effect.

    It dedupes on the key for `window` from the first call, and the request may leave as late as the try may last.
    """
    if node.window is None or not step.doubt or step.first_at is None:
        return False
    return retry.later(at, node.attempt_timeout) > retry.later(step.first_at, node.window)


def ask(draft: Draft, node: Node, step: Step, message: str | None) -> None:
    """Settle what nobody knows without repeating the call: by the probe, or a person."""
    if node.probe is not None:
        unknown(draft, step)
    else:
        draft.note("step.unknown", step, code=step.code)
        person(draft, step, OUTCOME_UNKNOWN, message)


def outlived(draft: Draft, node: Node, step: Step) -> bool:
    """Ask what became of a doubtful call whose key may be forgotten, before it is repeated; returns whether it did."""
    if not may_be_new(node, step, draft.now):
        return False
    ask(draft, node, replace(step, fence=step.fence + 1), KEY_MEMORY)
    return True


def forgotten(draft: Draft, node: Node, step: Step) -> bool:
    """Doubt a step before its first try in a database that may have forgotten one; returns whether it did.

    A standby that was behind, or a backup, has the run as it was some time ago. A call that was made since then may
    have been for any later step, and its worker may be at it yet.
    """
    moved = draft.run.moved_at
    if moved is None or step.kind is not StepKind.STEP or _deduped(draft, node, step):
        return False
    if step.started_at is not None and step.started_at >= moved:
        return False
    until = retry.later(moved, node.attempt_timeout + draft.limits.slack)
    doubted = replace(
        step,
        fence=step.fence + 1,
        doubt=True,
        doubt_at=max(until, draft.now),
        started_at=draft.now,
        code=DATABASE_MOVED,
        message=_MOVED,
    )
    if node.probe is None:
        person(draft, doubted, OUTCOME_UNKNOWN, _MOVED)
    else:
        unknown(draft, doubted)
    return True


def _deduped(draft: Draft, node: Node, step: Step) -> bool:
    """Whether the other side still knows the key of whatever was called since the step became runnable."""
    called = replace(step, doubt=True, first_at=step.first_at or step.since)
    return node.repeat is Repeat.SAFE and not may_be_new(node, called, draft.now)
