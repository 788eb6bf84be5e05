"""Children: runs that a run starts and waits for. It holds no worker, and no child touches its row.

The row waits while somebody looks after the child (`Seek`): starts it, tells it to stop, or sees that it has ended;
parenting.py answers what was found.
"""

from __future__ import annotations

from pydantic import BaseModel

from ..schemas.states import StepKind, StepState
from .changing import replace
from .context import View
from .definition import Definition, Node
from .draft import Draft
from .model import Run, Seek, Step
from .words import CHILD_INPUT, CHILD_STOPPING, clean


def begin(draft: Draft, node: Node, iteration: str) -> None:
    """Make the row of a child that has become runnable, and have the child started."""
    _, problem = made(draft.definition, draft.run, node)
    values = {"iteration": iteration, "queue": node.queue}
    if problem:
        told = {"code": CHILD_INPUT, "message": problem}
        row = draft.create(
            node.name, StepKind.CHILD, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), **values, **told
        )
        draft.note("step.manual_required", row, **told)
        return
    at = draft.first_nudge()
    row = draft.create(node.name, StepKind.CHILD, StepState.WAITING, wake_at=at, attempt=1, **values)
    seek(draft, row)


def made(parent: Definition, run: Run, node: Node) -> tuple[BaseModel | None, str]:
    """Return the input that a child gets and '', or None and what is wrong with it."""
    assert node.child is not None
    definition = node.child.definition
    try:
        value = node.child.input(View(parent, run, reader=node.name))
        definition.encode_input(value)
        definition.key_of(value)
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return None, clean(f"it raised {type(error).__name__}: {error}")
    return value, ""


def seek(draft: Draft, row: Step) -> None:
    """Have the child of a row looked after."""
    if (row.name, row.iteration) not in {(one.step, one.iteration) for one in draft.seeks}:
        draft.seeks.append(Seek(row.name, row.iteration))


def give_up(draft: Draft, step: Step) -> None:
    """Have the child stopped; the row ends when the child has."""
    if step.code != CHILD_STOPPING:
        seek(draft, draft.move(step, StepState.WAITING, wake_at=draft.first_nudge(), code=CHILD_STOPPING))


def again(draft: Draft, node: Node, step: Step) -> str:
    """Start the child anew after somebody has mended what was in the way; return what still is, or ''."""
    _, problem = made(draft.definition, draft.run, node)
    if not problem:
        fresh = replace(step, attempt=step.attempt + 1, code=None, message=None, child=None)
        seek(draft, draft.move(fresh, StepState.WAITING, wake_at=draft.first_nudge()))
    return problem
