"""Acts by a person: what no machine may decide, somebody decides, by name and with a reason.

Only what stands in front of a person is retried, skipped or marked. Afterwards the run goes on to where it was going:
forward, or, when it had been stopping, to its end. A refused act changes nothing and says what is in the way.
"""

from __future__ import annotations

from dataclasses import replace

from ..schemas.codecs import Unreadable
from ..schemas.options import Repeat
from ..schemas.reading import brought_up
from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState
from . import (
    advancing,
    approving,
    asking,
    budgets,
    cancelling,
    children,
    doubting,
    fanning,
    forward,
    locking,
    marking,
    questions,
    resuming,
    retry,
    sending,
    timers,
    undoing,
    waits,
    waking,
)
from .cancelling import go_back, note_act, waiting_for_person
from .context import latest
from .definition import Definition, Node
from .draft import Draft
from .facts import Act
from .model import Decision, Json, Run, Step
from .transitions import fit_together, fits
from .words import APPROVAL_REJECTED

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
        return _retry(draft, fact, node, step)
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
        return f"{step.name} is {step.state}: it does not wait for a person"
    return step


# --- again ----------------------------------------------------------------------------------------------


def _retry(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    if step.kind is StepKind.UNDO:
        return _undo_again(draft, fact, node, step)
    if draft.run.cause is not None:
        return _settle(draft, fact, node, step)
    again = _AGAIN.get(step.kind)
    if again is not None:
        return again(draft, fact, node, step)
    deduped = node.repeat is Repeat.SAFE and not doubting.may_be_new(node, step, draft.now)
    if step.doubt and not fact.did_not_happen and not deduped:
        return draft.refused(
            f"{step.name} may have taken effect, and a repetition could do it twice. If it did not, say that it did "
            "not happen; if it did, mark it as succeeded"
        )
    return _once_more(draft, fact, node, step)


def _once_more(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    granted, problem = budgets.granted(draft, step, fact.budget)
    if problem:
        return draft.refused(problem)
    note_act(draft, fact, step, budget=fact.budget)
    go_back(draft)
    if node.command is not None:
        sending.send_again(draft, node, _fresh(_cleared(granted, fact)))
    else:
        _again(draft, _cleared(granted, fact), StepState.PENDING, keep_first=node.window is not None)
    return draft.decision()


def _fresh(step: Step) -> Step:
    """Begin to count anew; attempts go on, by which a participant's replies are told apart."""
    return replace(step, first_at=None, probes=0, code=None, message=None)


def _undo_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Try an undo again under the approval that it has; one that was rejected is asked for anew."""
    if questions.open_in(step) is not None:
        return draft.refused(f"{step.name} waits for approval: approve it, or reject it")
    if step.code == APPROVAL_REJECTED:
        return approving.ask_again(draft, fact, node, step)
    note_act(draft, fact, step)
    go_back(draft)
    _again(draft, step, StepState.COMPENSATION_PENDING)
    return draft.decision()


def _again(draft: Draft, step: Step, state: StepState, *, keep_first: bool = False) -> None:
    """Begin anew with all tries; fence and operation key stay, so that older tries and their effects are known.

    Args:
        keep_first: While in doubt, the other side's memory is counted from the first try, whoever asks for one more.
    """
    first_at = step.first_at if keep_first and step.doubt else None
    fresh = replace(step, attempt=0, first_at=first_at, probes=0, code=None, message=None)
    draft.announce(draft.move(fresh, state, wake_at=draft.first_nudge()))


def _settle(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Find out once more what became of a step of a run that is stopping; it is not done again."""
    if step.doubt and not fact.did_not_happen:
        if not node.can_ask or step.kind is StepKind.WAIT:
            return draft.refused(
                f"the run is stopping because of {draft.run.cause}, so {step.name} is not tried again. Say that it did "
                "not happen, or mark it as succeeded"
            )
        note_act(draft, fact, step)
        go_back(draft)
        doubting.unknown(draft, replace(step, doubt_at=draft.now))
        return draft.decision()
    note_act(draft, fact, step)
    go_back(draft)
    ended = draft.move(_cleared(step, fact), StepState.FAILED)
    draft.note("step.failed", ended, code=ended.code)
    undoing.proceed(draft)
    return draft.decision()


def _wait_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Take the event that could not be read, if it can be now; else wait anew, under a new generation."""
    assert node.wait is not None
    if step.signal is not None and (event := _readable(node, step)) is not None:
        note_act(draft, fact, step)
        go_back(draft)
        forward.succeed(draft, step, event)
        return draft.decision()
    key, problem = waits.match(draft, node)
    if problem:
        return draft.refused(f"{step.name} cannot be waited for: {problem}")
    note_act(draft, fact, step)
    fresh = replace(
        step, attempt=1, doubt=False, doubt_at=None, probes=0, code=None, message=None, signal=None
    )
    until = retry.later(draft.now, node.wait.timeout)
    again = draft.move(fresh, StepState.WAITING, wake_at=until, generation=step.generation + 1)
    waits.register(draft, node, again, key)
    return draft.decision()


def _asked_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Ask the pure function of a choice or loop again; a loop that has had its rounds is allowed one more."""
    problem, result = asking.again(draft, step)
    if problem:
        return draft.refused(
            f"{step.name} cannot be asked: {problem}. Mend it, mark it as succeeded, or skip it"
        )
    note_act(draft, fact, step)
    go_back(draft)
    forward.succeed(draft, step, result)
    return draft.decision()


def _timed_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    problem = timers.again(draft, node, step)
    if problem:
        return draft.refused(
            f"{step.name} cannot be timed: {problem}. Mend it, mark it as succeeded, or skip it"
        )
    note_act(draft, fact, step)
    return draft.decision()


def _started_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    problem = children.again(draft, node, step)
    if problem:
        return draft.refused(
            f"the child of {step.name} cannot be started: {problem}. Mend it, mark it as succeeded, or skip it"
        )
    note_act(draft, fact, step)
    return draft.decision()


def _items_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Give out again what has failed; where there is no list yet, make it."""
    if step.fan is None:
        return _once_more(draft, fact, node, step)
    note_act(draft, fact, step, failed=step.fan.failed)
    fanning.again(draft, step)
    return draft.decision()


def _readable(node: Node, step: Step) -> Json:
    """Return the event that the wait was matched with as it is stored, None while it is not of the awaited class."""
    assert node.wait is not None
    try:
        event = brought_up(node.wait.event, dict(step.signal or {}), step.signal_version)
        node.decode(event)
    except (ValueError, Unreadable):
        return None
    return event


def _cleared(step: Step, fact: Act) -> Step:
    return replace(step, doubt=False, doubt_at=None) if fact.did_not_happen else step


#: What retrying means for a row that is no call.
_AGAIN = {
    StepKind.WAIT: _wait_again,
    StepKind.TIMER: _timed_again,
    StepKind.CHILD: _started_again,
    StepKind.EACH: _items_again,
    StepKind.CHOICE: _asked_again,
    StepKind.LOOP: _asked_again,
    StepKind.APPROVAL: approving.ask_again,
}


# --- without it -----------------------------------------------------------------------------------------


def _skip(draft: Draft, fact: Act, step: Step) -> Decision:
    note_act(draft, fact, step, code=step.code)
    go_back(draft)
    if step.kind is StepKind.UNDO:
        draft.note("step.skipped", draft.move(step, StepState.CANCELLED), undo_of=step.undo_of)
        undoing.proceed(draft)
        return draft.decision()
    skipped = draft.move(_cleared(step, fact), StepState.SKIPPED)
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
