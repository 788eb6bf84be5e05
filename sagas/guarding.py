"""Rows that wait for approval: what they are about, the question that goes with it, and whether it still holds.

An undo of risk HIGH or CRITICAL, and an approval of a flow, are rows with a question. What was approved is compared
once more when it is carried out: by the undo's claim, and by the first claim of what follows an approval.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from ..schemas.errors import MilepostError
from ..schemas.states import Risk, StepKind, StepState
from . import codec, questions, retry
from .context import View
from .definition import Node
from .draft import Draft
from .model import Json, Step
from .questions import Question
from .words import APPROVAL_REQUIRED, APPROVAL_VOID, PARAMS_FAILED, clean

#: Most bytes of the JSON of an approval's parameters: every change of its row writes them.
LONGEST_PARAMS = 8192


@dataclass(frozen=True, slots=True)
class About:
    """What a question is about.

    Attributes:
        hash: SHA-256 of the canonical JSON of all that it is bound to, in hexadecimal digits.
        shown: What of it persons see.
        problem: Why nobody can say; '' otherwise.
    """

    hash: str = ""
    shown: Json = None
    problem: str = ""


def of_undo(draft: Draft, undone: Step) -> About:
    """Return what an undo is called with: the run's input and the result of the step."""
    bound = {"input": draft.run.input, "result": undone.result}
    return About(codec.digest(bound).hex(), undone.result)


def of_approval(draft: Draft, node: Node) -> About:
    """Return what an approval is about: what `params` says, else the run's input."""
    spec = node.approval
    assert spec is not None
    if spec.params is None:
        return About(codec.digest({"input": draft.run.input}).hex())
    try:
        value = spec.params(View(draft.definition, draft.run, reader=node.name))
        if not isinstance(value, BaseModel):
            return About(problem=f"params returned {type(value).__name__}, not a pydantic model")
        shown = codec.encode(type(value), value, f"{node.name}: params")
        size = len(codec.canonical_json(shown))
    except MilepostError as error:
        return About(problem=clean(str(error)))
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return About(problem=clean(f"params raised {type(error).__name__}: {error}"))
    if size > LONGEST_PARAMS:
        return About(problem=f"params are {size} bytes of JSON, and {LONGEST_PARAMS} are kept at most")
    return About(codec.digest({"params": shown}).hex(), shown)


def about(draft: Draft, node: Node, step: Step) -> About:
    """Return what the question of a row would be about now."""
    if step.kind is StepKind.UNDO:
        undone = draft.run.step(node.name, step.iteration)
        return of_undo(draft, undone) if undone is not None else About(problem=f"{node.name} is not there")
    guard = guard_of(draft, node, step)
    return of_approval(draft, guard) if guard is not None else About(problem="its approval is not there")


def guard_of(draft: Draft, node: Node, step: Step) -> Node | None:
    """Return the approval that a row is, or that it comes first after and that was given."""
    if node.approval is not None:
        return node
    for name in draft.definition.approved_by.get(node.name, ()):
        for row in draft.run.steps:
            inside = _first_round_of(row.iteration, step.iteration)
            if row.name == name and row.state is StepState.SUCCEEDED and inside and _was_approved(row):
                return draft.definition.node(name)
    return None


def _was_approved(row: Step) -> bool:
    return isinstance(row.result, dict) and row.result.get("approved") is True


def _first_round_of(outer: str, path: str) -> bool:
    rest = path.removeprefix(outer).strip(".")
    return path.startswith(outer) and (not rest or set(rest.split(".")) == {"1"})


def question(node: Node, what: About, *, generation: int = 1, undo: bool = False) -> Question:
    """Return what persons are asked about an approval, or about the undo of a step."""
    if undo:
        assert node.undo is not None
        risk, needed, roles = node.undo.risk, node.undo.risk.approvals, frozenset[str]()
    else:
        assert node.approval is not None
        risk, roles = node.approval.risk, node.approval.roles
        needed = max(node.approval.quorum, 2 if risk is Risk.CRITICAL else 1)
    return Question(
        generation=generation,
        risk=risk,
        needed=needed,
        roles=tuple(sorted(roles)),
        hash=what.hash,
        params=what.shown,
    )


# --- rows that begin with a question ----------------------------------------------------------------------


def begin(draft: Draft, node: Node, iteration: str) -> None:
    """Make the row of an approval that has become runnable."""
    spec = node.approval
    assert spec is not None
    what = of_approval(draft, node)
    values = {"iteration": iteration, "queue": node.queue, "attempt": 1}
    if what.problem:
        told = {"code": PARAMS_FAILED, "message": what.problem}
        step = draft.create(
            node.name,
            StepKind.APPROVAL,
            StepState.MANUAL_REQUIRED,
            wake_at=draft.reminder(),
            **values,
            **told,
        )
        draft.note("step.manual_required", step, **told)
        return
    asked = question(node, what)
    until = retry.later(draft.now, spec.expires)
    step = draft.create(
        node.name, StepKind.APPROVAL, StepState.WAITING, wake_at=until, asked=asked.as_json(), **values
    )
    tell(draft, step, asked, until=until.isoformat(), then=spec.on_expiry.name)


def begin_undo(draft: Draft, node: Node, undone: Step) -> None:
    """Make the row of an undo, and announce it; one of high risk waits for approval first."""
    assert node.undo is not None
    values = {"iteration": undone.iteration, "undo_of": node.name, "queue": node.undo.queue}
    if not node.undo.risk.approvals:
        at = draft.first_nudge()
        pending = StepState.COMPENSATION_PENDING
        draft.announce(draft.create(node.undo.name, StepKind.UNDO, pending, wake_at=at, **values))
        return
    asked = question(node, of_undo(draft, undone), undo=True)
    step = draft.create(
        node.undo.name,
        StepKind.UNDO,
        StepState.MANUAL_REQUIRED,
        wake_at=draft.reminder(),
        code=APPROVAL_REQUIRED,
        asked=asked.as_json(),
        **values,
    )
    tell(draft, step, asked)


def tell(draft: Draft, step: Step, asked: Question, **more: Json) -> None:
    """Add the history row of a question; what it is about stays in its row."""
    draft.note(
        "approval.asked",
        step,
        generation=asked.generation,
        risk=asked.risk.value,
        needed=asked.needed,
        roles=list(asked.roles) or None,
        hash=asked.hash,
        **more,
    )


# --- whether it still holds -------------------------------------------------------------------------------


def void(draft: Draft, node: Node, step: Step) -> bool:
    """Take a row back to persons when what was approved is not what would be carried out now.

    Returns:
        Whether it was, so that it must not be claimed.
    """
    old, guard = questions.read(step), None
    if old is None:
        if step.attempt or node.name not in draft.definition.approved_by:
            return False
        guard = guard_of(draft, node, step)
        given = None if guard is None else _row_of(draft, guard, step)
        old = None if given is None else questions.read(given)
    if old is None:
        return False
    what = about(draft, node, step)
    if what.hash == old.hash and not what.problem:
        return False
    asked_by = node if step.kind is StepKind.UNDO else guard or guard_of(draft, node, step)
    if asked_by is None:
        return False
    hold(draft, step, asked_by, old, what)
    return True


def _row_of(draft: Draft, guard: Node, step: Step) -> Step | None:
    rows = [row for row in draft.run.steps if row.name == guard.name]
    return next((row for row in rows if _first_round_of(row.iteration, step.iteration)), None)


def hold(
    draft: Draft, step: Step, node: Node, old: Question, what: About, *, code: str = APPROVAL_VOID
) -> None:
    """Put a row whose approval is void in front of persons, with a question of the next generation.

    Args:
        code: Why it waits there.
    """
    undo = step.kind is StepKind.UNDO
    asked = question(node, what, generation=old.generation + 1, undo=undo)
    voided(draft, step, old)
    told = {"code": code, "message": what.problem or None}
    held = draft.move(
        step, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), asked=asked.as_json(), **told
    )
    tell(draft, held, asked)


def voided(draft: Draft, step: Step, old: Question) -> None:
    """Add the history row of approvals that count no more."""
    by = [one.by for one in old.given] or None
    draft.note("approval.voided", step, generation=old.generation, hash=old.hash, by=by)
