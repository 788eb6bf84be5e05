"""What follows when a run's deadline has passed or its active time is used up."""

from __future__ import annotations

from dataclasses import replace

from ..schemas.states import StepState
from . import stopping, timing, undoing
from .draft import Draft


def expired(draft: Draft) -> bool:
    """Stop the run if one of its limits has passed.

    Returns:
        Whether it was, so that nothing new may begin.
    """
    code = timing.passed(draft.definition, draft.run, draft.now)
    if code is None:
        return False
    _expire(draft, code)
    return True


def _expire(draft: Draft, code: str) -> None:
    stopping.halt(draft)
    if any(step.state is StepState.MANUAL_REQUIRED for step in draft.run.steps):
        # What a person has been asked for has to be known before anything is undone.
        draft.note("run.expiring", cause=code)
        draft.run = replace(draft.run, cause=code, wake_at=draft.reminder())
    elif not stopping.turn_round(draft, code):
        draft.run = replace(draft.run, cause=code)
        undoing.expire_run(draft)
