"""Commands to participants: sent with the decision, answered by a reply, asked for again when none comes.

A participant does each operation once, and answers again from its memory. So a reply to any attempt says that it was
done; that it was refused counts only from the latest one. A reply of the way forward is never taken for one of an undo.
"""

from __future__ import annotations

from ..schemas.codecs import Unreadable
from ..schemas.commands import DONE
from ..schemas.options import Repeat
from ..schemas.parts import faults_of
from ..schemas.reading import brought_up
from ..schemas.states import FINAL_STEP_STATES, StepKind, StepState
from . import denying, doubting, forward, retry, sending, stopping, undoing
from .changing import replace
from .definition import Node
from .draft import Draft
from .facts import Replied, TryFailed
from .model import Decision, Step
from .words import NO_REPLY, OUTCOME_UNKNOWN, REPLY_INVALID, clean, clean_code

_SILENT = "no reply came in its time"


def timed_out(draft: Draft, node: Node, step: Step) -> Decision:
    """Do what `repeat` says when no reply came; the participant may have acted."""
    draft.note("step.failed", step, code=NO_REPLY, message=_SILENT, verdict="unknown")
    doubted = replace(step, doubt=True, doubt_at=draft.now, code=NO_REPLY, message=_SILENT)
    wanted = not draft.stopping or doubting.must_be_known(draft, node)
    more = node.repeat is Repeat.SAFE and not retry.used_up(node.retry, step, draft.now)
    if wanted and more:
        sending.send_again(draft, node, doubted)
    elif node.repeat is Repeat.NEVER and wanted:
        doubting.person(draft, doubted, OUTCOME_UNKNOWN, _SILENT)
    else:
        _silent(draft, node, doubted)
    return draft.decision()


def _silent(draft: Draft, node: Node, step: Step) -> None:
    """Go on although nobody will answer any more."""
    if node.probe is not None:
        doubting.unknown(draft, step)
    elif stopping.undone_blindly(node) or not (node.undo or node.irreversible):
        denying.give_in(draft, node, step)
    else:
        doubting.person(draft, step, OUTCOME_UNKNOWN, _SILENT)


def replied(draft: Draft, fact: Replied) -> Decision:
    """Answer a reply."""
    step = _meant(draft, fact)
    node = None if step is None else draft.definition.node(step.undo_of or step.name)
    if step is None or node is None or node.command is None:
        return draft.refused(f"{draft.definition.title} has sent no command {fact.step} to {fact.direction}")
    late = step.state in FINAL_STEP_STATES or (fact.outcome != DONE and _older(fact, step))
    if late or (fact.direction == "undo" and step.state is not StepState.WAITING):
        draft.note(
            "reply.late", step, outcome=fact.outcome, attempt_replied=fact.attempt, state=step.state.value
        )
        return draft.ignored(f"{step.name} is {step.state}, attempt {step.attempt}: the reply is late")
    draft.note("command.replied", step, outcome=fact.outcome, code=fact.code or None)
    if fact.direction == "undo":
        return _undo_replied(draft, node, step, fact)
    if fact.outcome == DONE:
        _done(draft, node, step, fact)
    else:
        code, message = clean_code(fact.code or "REFUSED"), clean(fact.message) or None
        draft.note("step.failed", step, verdict="fatal", code=code, message=message)
        denying.give_in(draft, node, replace(step, doubt=False, doubt_at=None, code=code, message=message))
    return draft.decision()


def _older(fact: Replied, step: Step) -> bool:
    return fact.attempt != step.attempt and fact.direction == "do"


def _meant(draft: Draft, fact: Replied) -> Step | None:
    if fact.direction == "do":
        row = draft.run.step(fact.step, fact.iteration)
        return row if row is not None and row.kind is StepKind.COMMAND else None
    return next(
        (s for s in draft.run.steps if s.undo_of == fact.step and s.iteration == fact.iteration), None
    )


def _done(draft: Draft, node: Node, step: Step, fact: Replied) -> None:
    assert node.command is not None
    reply = node.command.reply
    wanted = reply.milepost_spec.type
    if fact.type not in {"", wanted}:
        # Its body may fit all the same, and mean something else.
        _unreadable(draft, step, f"it is a {fact.type}, and {reply.__name__} is {wanted}")
        return
    try:
        payload = brought_up(reply, fact.payload, fact.version)
        node.decode(payload)
    except (
        ValueError,
        TypeError,
        Unreadable,
    ) as error:  # pydantic's ValidationError, or what JSON cannot hold
        words = error.code if isinstance(error, Unreadable) else faults_of(reply, error)
        _unreadable(draft, step, f"it is no {reply.__name__}: {words}")
        return
    forward.succeed(draft, step, payload)


def _unreadable(draft: Draft, step: Step, words: str) -> None:
    """Put a step that was done, with a result that cannot be read, in front of a person."""
    doubting.person(draft, replace(step, doubt=False, doubt_at=None), REPLY_INVALID, clean(words))


def _undo_replied(draft: Draft, node: Node, step: Step, fact: Replied) -> Decision:
    if fact.outcome == "refused":
        failure = TryFailed(
            step.name, step.fence, "fatal", clean_code(fact.code or "REFUSED"), clean(fact.message)
        )
        return undoing.undo_failed(draft, node, step, failure)
    undoing.undone(draft, step)
    return draft.decision()
