"""Acts by a person: what no machine may decide, somebody decides, by name and with a reason.

Only what stands in front of a person is retried, skipped or marked. Afterwards the run goes on to where it was going:
forward, or, when it had been stopping, to its end. A refused act changes nothing and says what is in the way.
"""

from __future__ import annotations

from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState
from . import (
    advancing,
    approving,
    cancelling,
    forward,
    locking,
    marking,
    questions,
    repeating,
    resuming,
    undoing,
    waking,
)
from .cancelling import go_back, note_act, waiting_for_person
from .context import latest
from .definition import Definition, Node
from .draft import Draft
from .facts import Act
from .model import Decision, Run, Step
from .transitions import fit_together, fits

_ANSWERS = frozenset({"approve", "reject"})


def act(draft: Draft, fact: Act) -> Decision:  # noqa: PLR0911 - one return per kind of act
    """Answer an act; what does not fit the state is refused with words that say what is in the way."""
    odd = _odd(draft)
    if odd:
        return draft.refused(odd)
    if fact.what == "cancel":
        return cancelling.cancel(draft, fact)
    if draft.run.state in FINAL_RUN_STATES:
        return draft.refused(f"the run has ended as {draft.run.state}, and what has ended stays as it is")
    held = resuming.held_back(draft, fact)
    if held is not None:
        return held
    if fact.what == "resume":
        return _resume(draft, fact)
    if fact.what == "compensate":
        return cancelling.compensate(draft, fact)
    return _of_step(draft, fact)


def node_of(definition: Definition, step: Step) -> Node | None:
    """Return the node of a row; for an undo that of the step it undoes."""
    if step.kind is StepKind.UNDO:
        return definition.undone_by(step.name)
    node = definition.node(step.name)
    return node if node is not None and node.kind is step.kind else None


def _odd(draft: Draft) -> str:
    """Say which row this engine cannot have written, or ''."""
    for step in draft.run.steps:
        if not fits(draft.run.state, step):
            return f"{step.name} is {step.state} in a run that is {draft.run.state}: this engine did not write that"
        if step.state not in FINAL_STEP_STATES and node_of(draft.definition, step) is None:
            return f"{draft.definition.title} has no step {step.name}"
    if not fit_together(draft.run.state, draft.run.steps):
        return f"the run is {draft.run.state}, and no undo of it has failed: this engine did not write that"
    return ""


def _resume(draft: Draft, fact: Act) -> Decision:
    """Let a run go on that stands still with nothing in its way."""
    live = [step for step in draft.run.steps if step.state not in FINAL_STEP_STATES]
    if locking.queued(draft.run):
        turn = (
            "its turn has come, and it begins by itself"
            if draft.run.holds
            else "it begins when its turn comes"
        )
        return draft.refused(f"it stands in the queue of its resource: {turn}")
    if live:
        held = waiting_for_person(draft.run)
        words = ", ".join(
            f"{step.name} {step.state}" + (f" ({step.code})" if step.code else "") for step in live
        )
        asking_for = any(questions.open_in(step) is not None for step in live)
        fix = "retry it, skip it, or mark it as succeeded" if held else "the run goes on by itself"
        fix = "approve it, or reject it" if asking_for else fix
        return draft.refused(f"in the way is {words}: {fix}")
    note_act(draft, fact)
    if draft.run.state in {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}:
        go_back(draft)
    return waking.heal(draft)


def _of_step(draft: Draft, fact: Act) -> Decision:
    step = _answered(draft.run, fact) if fact.what in _ANSWERS else _meant(draft.run, fact)
    if isinstance(step, str):
        return draft.refused(step)
    node = node_of(draft.definition, step)
    problem = (
        f"{draft.definition.title} has no step {step.name}" if node is None else approving.bypass(step, fact)
    )
    if node is None or problem:
        return draft.refused(problem)
    if fact.what in _ANSWERS:
        return approving.answer(draft, fact, node, step)
    if fact.what == "retry":
        return repeating.again(draft, fact, node, step)
    if fact.what == "skip":
        return _skip(draft, fact, step)
    return _mark(draft, fact, node, step)


def _answered(run: Run, fact: Act) -> Step | str:
    """Return the row whose question an act answers, or why there is none."""
    return approving.meant(run, fact) or "the run waits for no approval of that name"


def _meant(run: Run, fact: Act) -> Step | str:
    """Return the row that an act is about, or why there is none."""
    held = waiting_for_person(run)
    if fact.step is None:
        return held[0] if len(held) == 1 else f"say which step; {len(held)} wait for a person"
    step = run.step(fact.step, fact.iteration)
    if not fact.iteration:
        rounds = [row for row in held if row.name == fact.step]
        step = rounds[-1] if rounds else step or latest(run, fact.step)
    if step is None:
        return (
            f"the run has no step {fact.step} yet; it has: {', '.join(s.name for s in run.steps) or 'none'}"
        )
    if step not in held:
        return f"{step.name} is {step.state}: {_why_not(step)}"
    return step


def _why_not(step: Step) -> str:
    if step.kind is StepKind.APPROVAL and step.state is StepState.WAITING:
        return "it is an approval, so approve it or reject it"
    if step.state in {StepState.UNKNOWN, StepState.RECONCILING}:
        return "its outcome is being asked for, and a person decides if that ends without an answer"
    return "it does not wait for a person"


# --- again ----------------------------------------------------------------------------------------------


def _skip(draft: Draft, fact: Act, step: Step) -> Decision:
    note_act(draft, fact, step, code=step.code)
    go_back(draft)
    if step.kind is StepKind.UNDO:
        draft.note("step.skipped", draft.move(step, StepState.CANCELLED), undo_of=step.undo_of)
        undoing.proceed(draft)
        return draft.decision()
    skipped = draft.move(repeating.cleared(step, fact), StepState.SKIPPED)
    draft.note("step.skipped", skipped, code=skipped.code, doubt=skipped.doubt or None)
    advancing.go_on(draft, skipped)
    return draft.decision()


def _mark(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    if step.kind is StepKind.UNDO:
        if fact.result is not None:
            return draft.refused(f"{step.name} is an undo, and has no result")
        note_act(draft, fact, step)
        go_back(draft)
        undoing.undone(draft, step)
        return draft.decision()
    result, problem = marking.checked(draft.definition, node, fact.result)
    if problem:
        return draft.refused(problem)
    note_act(draft, fact, step)
    go_back(draft)
    forward.succeed(draft, step, result)
    return draft.decision()
