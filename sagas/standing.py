"""How a part of a flow stands, and what state a run is in: both follow from the rows, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from ..schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState
from . import tree
from .model import Run, Step
from .words import CANCELS

_TURNED = frozenset({RunState.COMPENSATING, RunState.CANCEL_REQUESTED})
_STOPPING = _TURNED | {RunState.COMPENSATION_FAILED}
_PERSONS = frozenset({RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED})
#: Kinds of rows that hold no worker and no slot while they are live.
WAITING_KINDS = frozenset(
    {StepKind.WAIT, StepKind.TIMER, StepKind.COMMAND, StepKind.APPROVAL, StepKind.CHILD}
)
#: Kinds of which a try leaves nothing behind that is not stored with its end.
UNDOUBTED = frozenset({StepKind.TX, StepKind.EACH})
_GOOD = frozenset({StepState.SUCCEEDED, StepState.SKIPPED})
_UNTOUCHED = frozenset({StepState.PENDING})

Rows = Mapping[tuple[str, str], Step]


def waits(step: Step) -> bool:
    """Whether a live row holds no worker and no slot; a fan-out does while it lists its items."""
    return step.kind in WAITING_KINDS or (step.kind is StepKind.EACH and step.state is StepState.WAITING)


def partly_done(step: Step) -> bool:
    """Whether a fan-out that has not succeeded has items that have."""
    return step.kind is StepKind.EACH and bool(step.result) and step.result["succeeded"] > 0


def in_part(run: Run) -> bool:
    """Whether a run goes on although items of it have failed."""
    return any(
        step.kind is StepKind.EACH and step.state in _GOOD and bool(step.result) and step.result["failed"] > 0
        for step in run.steps
    )


class Standing(Enum):
    """How a part stands: still open, over with or without success, or lost but not over yet."""

    OPEN = "open"
    OK = "ok"
    FAILED = "failed"
    LOST = "lost"


def rows_of(run: Run) -> dict[tuple[str, str], Step]:
    """Return the rows of a run by name and iteration."""
    return {(step.name, step.iteration): step for step in run.steps}


def live_in(part: tree.Part, rows: Rows, path: str) -> list[Step]:
    """Return the live rows of a part in an iteration, of the rounds within it too."""
    inside = frozenset(tree.names(part))
    return [
        step
        for step in rows.values()
        if step.state not in FINAL_STEP_STATES
        and step.name in inside
        and (step.iteration == path or not path or step.iteration.startswith(f"{path}."))
    ]


def look(part: tree.Part, rows: Rows, path: str = "") -> Standing:
    """Say how a part stands in an iteration."""
    match part:
        case tree.Leaf(name=name):
            return _of_row(rows.get((name, path)))
        case tree.Series(parts=parts):
            return _in_order(parts, rows, path)
        case tree.Parallel():
            return _beside(part, rows, path)
        case tree.Choice():
            return _choice(part, rows, path)
        case tree.Loop():
            return _loop(part, rows, path)


def _of_row(row: Step | None) -> Standing:
    if row is None or row.state not in FINAL_STEP_STATES:
        return Standing.OPEN
    return Standing.OK if row.state in _GOOD else Standing.FAILED


def _in_order(parts: tuple[tree.Part, ...], rows: Rows, path: str) -> Standing:
    for part in parts:
        standing = look(part, rows, path)
        if standing is not Standing.OK:
            return standing
    return Standing.OK


def gives_up(part: tree.Parallel, rows: Rows, path: str) -> bool:
    """Whether what is still open in a part is not wanted any more: enough have succeeded, or not enough can."""
    standings = [look(branch, rows, path) for branch in part.branches]
    lost = sum(standing in {Standing.FAILED, Standing.LOST} for standing in standings)
    return len(standings) - lost < part.need or (part.early and _good(standings) >= part.need)


def _good(standings: list[Standing]) -> int:
    return sum(standing is Standing.OK for standing in standings)


def _beside(part: tree.Parallel, rows: Rows, path: str) -> Standing:
    standings = [look(branch, rows, path) for branch in part.branches]
    lost = sum(standing in {Standing.FAILED, Standing.LOST} for standing in standings)
    if len(standings) - lost < part.need:
        return Standing.LOST if live_in(part, rows, path) else Standing.FAILED
    if part.early and _good(standings) >= part.need:
        return Standing.OPEN if live_in(part, rows, path) else Standing.OK
    over = all(standing in {Standing.OK, Standing.FAILED} for standing in standings)
    return Standing.OK if over else Standing.OPEN


def _choice(part: tree.Choice, rows: Rows, path: str) -> Standing:
    row = rows.get((part.name, path))
    if row is None or row.state is not StepState.SUCCEEDED:
        return _of_row(row)
    return look(way_of(part, row), rows, path)


def way_of(part: tree.Choice, row: Step) -> tree.Series:
    """Return the way that the row of a choice says was taken."""
    return part.then if row.result["then"] else part.otherwise


def _loop(part: tree.Loop, rows: Rows, path: str) -> Standing:
    number, row = round_of(part, rows, path)
    inside = tree.under(path, number)
    if row is None:
        body = look(part.body, rows, inside)
        return body if body in {Standing.FAILED, Standing.LOST} else Standing.OPEN
    if live_in(part.body, rows, inside):
        return Standing.OPEN
    return _of_row(row)


def round_of(part: tree.Loop, rows: Rows, path: str) -> tuple[int, Step | None]:
    """Return the number of a loop's round that is open or was the last, and its row if it has ended.

    A round begins when nothing of the one before is live, so only the last one's rows are looked at.
    """
    number = 1
    row = rows.get((part.name, tree.under(path, number)))
    while row is not None and (after := rows.get((part.name, tree.under(path, number + 1)))) is not None:
        number, row = number + 1, after
    again = row is not None and row.state is StepState.SUCCEEDED and not row.result["done"]
    if again and not live_in(part.body, rows, tree.under(path, number)):
        return number + 1, None
    return number, row


def culprit(part: tree.Part, rows: Rows) -> Step | None:
    """Return the row by which a part is lost: of those that count the one that ended first."""
    found = list(_losing(part, rows, ""))
    failed = [row for row in found if row.state is StepState.FAILED] or found
    return min(failed, key=lambda row: (row.finished_at is None, row.finished_at)) if failed else None


def _losing(part: tree.Part, rows: Rows, path: str) -> Iterator[Step]:
    """Yield the rows by which a part is lost."""
    if isinstance(part, tree.Leaf):
        yield from _failed(rows.get((part.name, path)))
    elif isinstance(part, tree.Choice):
        yield from _losing_choice(part, rows, path)
    elif isinstance(part, tree.Loop):
        number, row = round_of(part, rows, path)
        yield from _losing(part.body, rows, tree.under(path, number)) if row is None else _failed(row)
    elif isinstance(part, tree.Series):
        stuck = next((one for one in part.parts if look(one, rows, path) is not Standing.OK), None)
        yield from () if stuck is None else _losing(stuck, rows, path)
    else:
        for branch in part.branches if part.need else ():
            yield from _losing(branch, rows, path)


def _losing_choice(part: tree.Choice, rows: Rows, path: str) -> Iterator[Step]:
    row = rows.get((part.name, path))
    if row is not None and row.state is StepState.SUCCEEDED:
        yield from _losing(way_of(part, row), rows, path)
    else:
        yield from _failed(row)


def _failed(row: Step | None) -> Iterator[Step]:
    if row is not None and _of_row(row) is Standing.FAILED:
        yield row


def stopping(run: Run) -> bool:
    """Whether a run goes no longer forward: what fails is not tried again, and nothing new begins."""
    if run.state is RunState.MANUAL_REQUIRED:
        return run.cause is not None or _has_undo(run)
    return run.state in _STOPPING


def _has_undo(run: Run) -> bool:
    return any(step.kind is StepKind.UNDO for step in run.steps)


def state_of(run: Run) -> RunState:
    """Return the state of a run that is not over: the most urgent thing that its rows say.

    A person comes first, although other branches may be going on; a run that only waits holds no worker.
    """
    live = [step for step in run.steps if step.state not in FINAL_STEP_STATES]
    states = {step.state for step in live}
    if StepState.COMPENSATION_FAILED in states:
        return RunState.COMPENSATION_FAILED
    if StepState.MANUAL_REQUIRED in states:
        return RunState.MANUAL_REQUIRED
    if not live or run.state in _TURNED:
        return run.state
    if run.state in _PERSONS and (run.cause is not None or _has_undo(run)):
        return (
            RunState.CANCEL_REQUESTED
            if run.cause in CANCELS and not _has_undo(run)
            else RunState.COMPENSATING
        )
    if all(map(waits, live)):
        return RunState.WAITING
    untouched = states <= _UNTOUCHED and all(not step.attempt for step in live)
    return RunState.PENDING if run.state is RunState.PENDING and untouched else RunState.RUNNING
