"""A try of a step that failed: again, unknown, given up, or to a person."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..schemas.options import Repeat
from ..schemas.states import StepKind, StepState
from . import advancing, budgets, denying, doubting, fanning, forward, retry, standing, undoing
from .definition import Node
from .draft import Draft
from .facts import FOR_GOOD, TryFailed, Verdict
from .model import Decision, Step
from .words import OUTCOME_UNKNOWN, WORKER_LOST, clean, clean_code


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed try.

    Attributes:
        ended_at: When the try can last have had an effect.
        at_once: Repeat without a pause, because the worker failed and not the other side.
    """

    verdict: Verdict
    code: str
    message: str
    ended_at: datetime
    retry_after: timedelta | None = None
    at_once: bool = False


def try_failed(draft: Draft, node: Node, step: Step, fact: TryFailed) -> Decision:
    """Answer a failed try; of an old fence it is only evidence."""
    fact = replace(fact, code=clean_code(fact.code), message=clean(fact.message))
    if step.fence == fact.fence and step.state is StepState.RUNNING:
        if fact.over and not draft.stopping:
            return budgets.exceeded(draft, step, fact.over)
        failure = Failure(fact.verdict, fact.code, fact.message, draft.now, fact.retry_after)
        return failed(draft, node, step, failure)
    if step.fence == fact.fence and step.state is StepState.COMPENSATING:
        return undoing.undo_failed(draft, node, step, fact)
    return forward.late(draft, step, fact.fence, code=fact.code, message=fact.message, verdict=fact.verdict)


def lost(draft: Draft, node: Node, step: Step, code: str, ended_at: datetime) -> Decision:
    """Answer a RUNNING step whose worker is gone or stuck; the old worker is fenced out."""
    fenced = replace(step, fence=step.fence + 1)
    return failed(draft, node, fenced, Failure("unknown", code, lost_words(code), ended_at, at_once=True))


def lost_words(code: str) -> str:
    """Return the words for people that go with WORKER_LOST or HARD_TIMEOUT."""
    return "the worker's lease ended" if code == WORKER_LOST else "the try did not end in its time"


def failed(draft: Draft, node: Node, step: Step, failure: Failure) -> Decision:
    """Apply the step's `repeat` to a failed try."""
    draft.note("step.failed", step, code=failure.code, message=failure.message, verdict=failure.verdict)
    step = replace(step, code=failure.code, message=failure.message)
    if failure.verdict == "fatal":
        denying.give_in(draft, node, replace(step, doubt=False, doubt_at=None))
    elif failure.verdict == "quality" and not step.doubt and advancing.go_round(draft, step):
        pass
    elif failure.verdict in FOR_GOOD:
        denying.ended(draft, node, step, denied=failure.verdict == "policy")
    elif step.kind is StepKind.EACH and failure.code in fanning.BAD_LISTS:
        fanning.bad_list(draft, step, failure.code)
    elif failure.verdict == "not_sent" or step.kind in standing.UNDOUBTED:
        _again(draft, node, step, failure)
    else:
        _in_doubt(draft, node, replace(step, doubt=True, doubt_at=failure.ended_at), failure)
    advancing.tidy(draft)
    return draft.decision()


def _in_doubt(draft: Draft, node: Node, step: Step, failure: Failure) -> None:
    if node.repeat is Repeat.SAFE:
        _again(draft, node, step, failure)
    elif node.repeat is Repeat.ASK_FIRST:
        doubting.unknown(draft, step)
    elif draft.stopping and node.undo is not None and node.undo.blind:
        denying.give_in(draft, node, step)
    else:
        draft.note("step.unknown", step, code=failure.code)
        doubting.person(draft, step, OUTCOME_UNKNOWN, failure.message)


def _again(draft: Draft, node: Node, step: Step, failure: Failure) -> None:
    if draft.stopping:
        denying.used_up(draft, node, step)
        return
    pause = retry.delay(node.retry, step.attempt, draft.dice, failure.retry_after)
    start = draft.now if failure.at_once else retry.later(draft.now, pause)
    if doubting.may_be_new(node, step, start):
        doubting.ask(draft, node, step, doubting.KEY_MEMORY)
        return
    if retry.used_up(node.retry, step, start):
        draft.note("step.attempts_used_up", step, attempts=step.attempt)
        denying.used_up(draft, node, step)
        return
    state = StepState.PENDING if failure.at_once else StepState.RETRY_PENDING
    again = draft.move(step, state, wake_at=draft.first_nudge() if failure.at_once else start)
    draft.note("step.retry_scheduled", again, code=failure.code, at=start.isoformat())
    if failure.at_once:
        draft.announce(again)
