"""Fan-out: a list of items, a run for each, and how they end together. No item touches the row of the node.

The row is claimed like a step, to list the items; then it waits while somebody looks after them (`Seek`): gives them
out, counts what has ended, stops them. When all have ended, it is decided once what follows.
"""

from __future__ import annotations

from ..schemas.states import StepState
from . import advancing, children, denying, doubting, forward
from .changing import replace
from .definition import Node
from .draft import Draft
from .model import Decision, Fan, Json, Step
from .words import CHILD_STOPPING, ITEMS_CANCELLED, ITEMS_FAILED

#: Codes of lists that are wrong themselves, so that reading them again is of no use.
BAD_LISTS = frozenset({"MP392", "MP393", "MP394"})


def listed(draft: Draft, step: Step, items: int) -> None:
    """Go on from a list that is stored with this decision; in a run that stops it is not, and nothing begins."""
    if draft.stopping:
        advancing.go_on(draft, draft.move(step, StepState.CANCELLED))
        return
    draft.note("fanout.listed", step, items=items)
    if not items:
        forward.succeed(draft, step, _numbers(0, 0, 0))
        return
    row = draft.move(step, StepState.WAITING, wake_at=draft.first_nudge(), code=None, message=None)
    children.seek(draft, row)
    advancing.tidy(draft)


def bad_list(draft: Draft, step: Step, code: str) -> None:
    """Put a list before a person that no further try would make right."""
    if draft.stopping:
        advancing.go_on(draft, draft.move(step, StepState.FAILED))
    else:
        doubting.person(draft, step, code, step.message)


def seen(draft: Draft, node: Node, step: Step) -> Decision:
    """Answer somebody who has looked after the items."""
    fan = _ended(step)
    if fan is None:
        return draft.ignored(f"{step.name} is {step.state}, and its items have not all ended")
    _settle(draft, node, step, fan)
    return draft.decision()


def woken(draft: Draft, node: Node, step: Step) -> Decision:
    """Look after the items again: a message may have got lost."""
    fan = _ended(step)
    if fan is not None:
        _settle(draft, node, step, fan)
    else:
        row = draft.move(step, StepState.WAITING, wake_at=draft.next_nudge(step), nudges=step.nudges + 1)
        children.seek(draft, row)
    return draft.decision()


def again(draft: Draft, step: Step) -> None:
    """Have the items that have failed given out again, after somebody has mended what was in their way."""
    fresh = replace(step, attempt=step.attempt + 1, code=None, message=None, result=None)
    children.seek(draft, draft.move(fresh, StepState.WAITING, wake_at=draft.first_nudge()))


def _ended(step: Step) -> Fan | None:
    """Return how the items ended of a row that waits for nothing else; those of an earlier attempt do not count."""
    fan = step.fan
    waits = step.state is StepState.WAITING
    return fan if waits and fan is not None and fan.over and fan.attempt == step.attempt else None


def _settle(draft: Draft, node: Node, step: Step, fan: Fan) -> None:
    """End the row as its items have ended."""
    assert node.each is not None
    result = _numbers(fan.total, fan.succeeded, fan.failed)
    draft.note("fanout.ended", step, total=fan.total, succeeded=fan.succeeded, failed=fan.failed)
    if fan.succeeded == fan.total or (
        step.code != CHILD_STOPPING and fan.succeeded / fan.total >= node.each.min_success
    ):
        forward.succeed(draft, step, result)
    elif step.code == CHILD_STOPPING:
        state = StepState.FAILED if fan.succeeded or fan.failed else StepState.CANCELLED
        message = f"{fan.succeeded} of {fan.total} items had succeeded when it was stopped"
        advancing.go_on(draft, draft.move(step, state, code=ITEMS_CANCELLED, message=message, result=result))
    else:
        message = f"{fan.failed} of {fan.total} items have failed; {node.each.min_success:.6g} of them have to succeed"
        draft.note("step.failed", step, verdict="fatal", code=ITEMS_FAILED, message=message)
        denying.give_in(draft, node, replace(step, code=ITEMS_FAILED, message=message, result=result))


def _numbers(total: int, succeeded: int, failed: int) -> dict[str, Json]:
    return {"total": total, "succeeded": succeeded, "failed": failed}
