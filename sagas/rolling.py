"""Forward recovery: a step that says `on_failure=Then.RETRY` is tried without end, and never leads to an undo.

Once its tries are used up it stands in front of a person, who sees it and may decide, and is tried again all the same
after a pause that doubles up to an hour.
"""

from __future__ import annotations

from datetime import timedelta

from ..schemas.options import Then
from ..schemas.states import StepState
from . import retry
from .definition import Node
from .draft import Draft
from .model import Step

#: Longest pause between two tries, unless the step's own `cap` is longer.
LONGEST_PAUSE = timedelta(hours=1)


def hold(draft: Draft, node: Node, step: Step, code: str) -> None:
    """Put a step whose tries are used up in front of a person until its next try."""
    over = max(step.attempt - node.retry.attempts, 0)
    grown = retry.grown(
        max(node.retry.cap, timedelta(seconds=1)), 2.0, over, max(node.retry.cap, LONGEST_PAUSE)
    )
    at = retry.later(draft.now, grown * (0.5 + draft.dice / 2))
    held = draft.move(step, StepState.MANUAL_REQUIRED, wake_at=at, code=code, nudges=1)
    draft.note("step.manual_required", held, code=code, message=step.message)
    draft.note("step.retry_scheduled", held, code=code, at=at.isoformat())


def again(draft: Draft, node: Node, step: Step) -> bool:
    """Try a step again whose pause is over.

    Returns:
        Whether it was; a row that a person is asked about for another reason stays.
    """
    if node.on_failure is not Then.RETRY or not step.nudges or draft.stopping:
        return False
    draft.announce(draft.move(step, StepState.PENDING, wake_at=draft.first_nudge()))
    return True
