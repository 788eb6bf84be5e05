"""The rows of choices and loops: what the user's pure function said once is kept, and never asked again."""

from __future__ import annotations

from ..schemas.options import Then
from ..schemas.states import StepKind, StepState
from . import tree
from .context import View
from .draft import Draft
from .model import Json, Step
from .words import LOOP_EXHAUSTED, TEST_FAILED, clean


def choose(draft: Draft, part: tree.Choice, path: str) -> Step:
    """Ask which way a run goes."""
    answer, problem = ask(draft, part.name, part.test)
    if problem:
        return _held(draft, part.name, StepKind.CHOICE, path, code=TEST_FAILED, message=problem)
    return _kept(draft, part.name, StepKind.CHOICE, path, {"then": answer})


def end_round(draft: Draft, part: tree.Loop, path: str, number: int) -> Step:
    """Ask whether a loop is done with the round that is over; the last one that is not is a failure."""
    inside = tree.under(path, number)
    answer, problem = ask(draft, part.name, part.until)
    if problem:
        return _held(draft, part.name, StepKind.LOOP, inside, code=TEST_FAILED, message=problem)
    if answer or number < part.at_most:
        return _kept(draft, part.name, StepKind.LOOP, inside, {"done": answer})
    return exhausted(draft, part.name, inside, number)


def again(draft: Draft, row: Step) -> tuple[str, Json]:
    """Return '' and what a row in front of a person is to keep, or what is wrong with the answer and None."""
    if row.code == LOOP_EXHAUSTED:
        return "", row.result or {"done": False}
    part = next(p for p in tree.parts(draft.definition.flow) if getattr(p, "name", None) == row.name)
    assert isinstance(part, tree.Choice | tree.Loop)
    answer, problem = ask(draft, part.name, part.test if isinstance(part, tree.Choice) else part.until)
    field = "then" if row.kind is StepKind.CHOICE else "done"
    return problem, None if problem else {field: answer}


def round_failed(draft: Draft, part: tree.Loop, step: Step) -> None:
    """End a loop's round because of a step whose work was not good enough; `until` is not asked.

    Of two such steps beside each other the first one ends it.
    """
    depth = sum(isinstance(one, tree.Loop) for one in tree.way_to(draft.definition.flow, part.name))
    inside = ".".join(step.iteration.split(".")[:depth])
    if draft.run.step(part.name, inside) is not None:
        return
    number = int(inside.rpartition(".")[2])
    said = {"done": False, "because": step.name}
    if number < part.at_most:
        _kept(draft, part.name, StepKind.LOOP, inside, said)
    else:
        exhausted(draft, part.name, inside, number, said)


def ask(draft: Draft, name: str, pure: tree.Pure) -> tuple[bool, str]:
    """Return what a pure function of the user's answers and '', or False and what is wrong with it."""
    try:
        answer = pure(View(draft.definition, draft.run, reader=name))
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return False, clean(f"it raised {type(error).__name__}: {error}")
    if not isinstance(answer, bool):
        return False, f"it returned {type(answer).__name__}, not True or False"
    return answer, ""


def exhausted(draft: Draft, name: str, iteration: str, number: int, said: Json = None) -> Step:
    """End a loop whose last round was not enough, by its `on_failure`.

    Args:
        said: What the row keeps should a person allow another round.
    """
    node = draft.definition.node(name)
    words = f"not done after {number} round{'' if number == 1 else 's'}"
    if node is not None and node.on_failure is Then.PERSON:
        return _held(draft, name, StepKind.LOOP, iteration, code=LOOP_EXHAUSTED, message=words, result=said)
    told = {"iteration": iteration, "code": LOOP_EXHAUSTED, "message": words}
    row = draft.create(name, StepKind.LOOP, StepState.FAILED, wake_at=None, **told)
    draft.note("step.failed", row, code=LOOP_EXHAUSTED, message=words)
    return row


def _kept(draft: Draft, name: str, kind: StepKind, iteration: str, result: Json) -> Step:
    row = draft.create(name, kind, StepState.SUCCEEDED, wake_at=None, iteration=iteration, result=result)
    draft.note("step.completed", row, **result)
    return row


def _held(
    draft: Draft, name: str, kind: StepKind, iteration: str, *, code: str, message: str, result: Json = None
) -> Step:
    values = {"iteration": iteration, "code": code, "message": message, "result": result}
    row = draft.create(name, kind, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), **values)
    draft.note("step.manual_required", row, code=code, message=message)
    return row
