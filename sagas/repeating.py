"""A person has what stands in front of them tried once more: a call, an undo, a wait, a question, a child, items."""

from __future__ import annotations

from dataclasses import replace

from ..schemas.codecs import Unreadable
from ..schemas.options import Repeat
from ..schemas.reading import brought_up
from ..schemas.states import StepKind, StepState
from . import (
    approving,
    asking,
    budgets,
    children,
    doubting,
    fanning,
    forward,
    questions,
    retry,
    sending,
    timers,
    undoing,
    waits,
)
from .cancelling import go_back, note_act
from .definition import Node
from .draft import Draft
from .facts import Act
from .model import Decision, Json, Step
from .words import APPROVAL_REJECTED


def again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Do what a person has asked for with `retry`, where it is safe; else refuse it with what would make it so."""
    if step.kind is StepKind.UNDO:
        return _undo_again(draft, fact, node, step)
    if draft.run.cause is not None:
        return _settle(draft, fact, node, step)
    other = _AGAIN.get(step.kind)
    if other is not None:
        return other(draft, fact, node, step)
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
        sending.send_again(draft, node, _fresh(cleared(granted, fact)))
    else:
        _again(draft, cleared(granted, fact), StepState.PENDING, keep_first=node.window is not None)
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
    ended = draft.move(cleared(step, fact), StepState.FAILED)
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


def cleared(step: Step, fact: Act) -> Step:
    """Return a step without its doubt, where a person says that it did not happen."""
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
