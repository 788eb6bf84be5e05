"""The rows of waits: made, registered, closed.

The generation of a wait's row stays the same for as long as its wait is open, also while a probe is asked: the
database knows the wait, and the signal that it was matched with, under that generation.
"""

from __future__ import annotations

from ..schemas.states import StepKind, StepState
from ..schemas.texts import INDEXED, too_long_to_index
from . import retry
from .context import View
from .definition import Node, text_problem
from .draft import Draft
from .model import CloseWait, OpenWait, Step
from .words import MATCH_FAILED, clean

_OPEN = frozenset({StepState.WAITING, StepState.UNKNOWN, StepState.RECONCILING})


def begin(draft: Draft, node: Node, iteration: str) -> None:
    """Make the row of a wait that has become runnable, and register it."""
    assert node.wait is not None
    key, problem = match(draft, node)
    if problem:
        values = {"queue": node.queue, "code": MATCH_FAILED, "message": problem}
        step = draft.create(
            node.name,
            StepKind.WAIT,
            StepState.MANUAL_REQUIRED,
            wake_at=draft.reminder(),
            iteration=iteration,
            **values,
        )
        draft.note("step.manual_required", step, code=MATCH_FAILED, message=problem)
        return
    until = retry.later(draft.now, node.wait.timeout)
    step = draft.create(
        node.name,
        StepKind.WAIT,
        StepState.WAITING,
        wake_at=until,
        iteration=iteration,
        queue=node.queue,
        attempt=1,
    )
    register(draft, node, step, key)


def match(draft: Draft, node: Node) -> tuple[str, str]:
    """Return the text that an event's correlation field must equal and '', or '' and what is wrong with it."""
    assert node.wait is not None
    try:
        key = node.wait.match(View(draft.definition, draft.run, reader=node.name))
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return "", clean(f"match raised {type(error).__name__}: {error}")
    problem = text_problem(key, longest=512)
    if not problem and too_long_to_index(draft.run.tenant, node.wait.event.milepost_spec.type, key):
        problem = f"with the event's type and the tenant takes more than {INDEXED} bytes"
    return ("", clean(f"match returned {key!r}, which {problem}")) if problem else (key, "")


def register(draft: Draft, node: Node, step: Step, key: str) -> None:
    """Open the wait under the row's generation."""
    wait = node.wait
    assert wait is not None
    assert step.wake_at is not None
    awaited = wait.event.milepost_spec.type
    draft.opens.append(OpenWait(step.name, step.generation, awaited, key, wait.broadcast, step.iteration))
    draft.note(
        "run.waiting",
        step,
        awaits=awaited,
        key=key,
        until=step.wake_at.isoformat(),
        then=wait.on_timeout.name,
    )


def close(draft: Draft, step: Step) -> None:
    """End an open wait otherwise than by its signal; does nothing for other rows."""
    if is_open(step):
        draft.closes.append(CloseWait(step.name, step.generation, step.iteration))


def is_open(step: Step) -> bool:
    """Whether the row is a wait that a signal may still satisfy."""
    return step.kind is StepKind.WAIT and step.state in _OPEN
