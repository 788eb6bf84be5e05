"""Resource locks: one run at a time has what its input names; the others stand in a queue, or are refused.

A run that stands in the queue is PENDING and has no rows. It has the lock from when it is first and the one before it
is final, and gives it back in the change that makes itself final.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel

from ..schemas.errors import DefinitionError, UsageError
from ..schemas.states import RunState
from ..schemas.texts import INDEXED, too_long_to_index
from . import advancing, retry
from .definition import Definition, text_problem
from .draft import Draft
from .model import Decision, Run


def check(definition: Definition) -> None:
    """Refuse options of a lock that mean nothing.

    Raises:
        DefinitionError: MP113.
    """
    if definition.if_locked not in {"queue", "reject"}:
        raise DefinitionError(
            "MP113",
            f"{definition.title}: if_locked={definition.if_locked!r} is neither 'queue' nor 'reject'.",
        )
    if definition.lock is None and definition.if_locked != "queue":
        raise DefinitionError(
            "MP113",
            f"{definition.title}: if_locked={definition.if_locked!r} without lock= locks nothing. Add lock=, or delete "
            "it.",
        )


def lock_of(definition: Definition, value: BaseModel, tenant: str) -> str | None:
    """Return the name of the resource that a run with this input needs, or None for none.

    Raises:
        UsageError: MP333 when it is no text of 1 to 512 characters that can be stored.
    """
    if definition.lock is None:
        return None
    name = definition.lock(value)
    problem = text_problem(name, longest=512)
    if not problem and too_long_to_index(tenant, name):
        problem = f"with the tenant takes more than {INDEXED} bytes"
    if problem:
        raise UsageError(
            "MP333",
            f"{definition.title}: lock= returned {name!r}, which {problem}. Return a short, stable text that names the "
            "resource.",
        )
    return name


def queued(run: Run) -> bool:
    """Whether the run has not begun because it stands, or stood until just now, in the queue of its resource."""
    return run.resource is not None and run.state is RunState.PENDING and not run.steps


def enter(draft: Draft) -> Decision:
    """Stand in the queue: no step begins until the resource is this run's."""
    draft.note("run.queued", lock=draft.run.resource)
    soon = min(retry.later(draft.now, draft.limits.nudge), draft.next_look())
    draft.run = replace(draft.run, wake_at=soon, active_since=None)
    draft.lock = "enter"
    return draft.decision()


def look(draft: Draft) -> Decision:
    """Begin when the resource is this run's; else let the database see whether somebody's turn has come.

    What tells a run of its turn may be lost, so it looks by itself, too: each time after as long as it has waited so
    far, within the bounds of work that nobody has claimed.
    """
    run = draft.run
    if run.holds:
        draft.note("run.lock_granted", lock=run.resource)
        draft.run = replace(
            run, active_since=draft.now if draft.definition.active_timeout is not None else None
        )
        draft.keep_awake()
        advancing.advance(draft)
        return draft.decision()
    waited = draft.now - (run.queued_since or draft.now)
    pause = min(max(waited, draft.limits.nudge), draft.limits.nudge_cap)
    draft.run = replace(run, wake_at=min(retry.later(draft.now, pause), draft.next_look()))
    draft.lock = "ask"
    return draft.decision()
