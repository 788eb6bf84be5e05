"""Stopping and undoing: what may have happened is undone, one at a time, in reverse order of completion."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from ..schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState
from . import guarding, retry, standing, timing
from .definition import Node
from .draft import Draft
from .facts import FOR_GOOD, TryFailed
from .model import Decision, Step
from .words import CANCELLED, NO_REPLY

_PERSONS = frozenset({StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED})


def compensating(draft: Draft, code: str) -> None:
    """Turn the run round."""
    draft.note("run.compensating", cause=code)
    draft.move_run(RunState.COMPENSATING, cause=code, code=None)


def fail_run(draft: Draft, code: str | None) -> None:
    """End the run as FAILED, or as EXPIRED when it stops because its time is over."""
    if timing.has_run_out(draft.run, draft.now):
        expire_run(draft)
        return
    draft.note("run.failed", code=code)
    draft.move_run(RunState.FAILED, code=code, cause=draft.run.cause or code)


def expire_run(draft: Draft) -> None:
    """End a run whose `cause` says which limit of its time has passed."""
    draft.note("run.expired", cause=draft.run.cause)
    draft.move_run(RunState.EXPIRED, code=draft.run.cause)


def proceed(draft: Draft) -> None:
    """Begin the next undo, unless something is still under way; end the run after the last.

    An undo that is detached and awaits a person holds back no other, but the run does not end without it.
    """
    while not (holding := _live(draft)) or all(map(_waits_apart(draft), holding)):
        following = _next(draft)
        if following is None or draft.run.state is RunState.CANCEL_REQUESTED:
            break
        guarding.begin_undo(draft, *following)
    if not holding:
        _end(draft)


def _live(draft: Draft) -> list[Step]:
    return [step for step in draft.run.steps if step.state not in FINAL_STEP_STATES]


def _waits_apart(draft: Draft) -> Callable[[Step], bool]:
    """Return what tells whether a live row holds back no undo."""

    def apart(step: Step) -> bool:
        node = draft.definition.undone_by(step.name) if step.kind is StepKind.UNDO else None
        return node is not None and node.undo is not None and node.undo.detached and step.state in _PERSONS

    return apart


def _end(draft: Draft) -> None:
    if (
        draft.run.state is RunState.MANUAL_REQUIRED
    ):  # whom it stood in front of is not among its rows any more
        draft.move_run(RunState.COMPENSATING, code=None)
    if draft.run.state is RunState.CANCEL_REQUESTED:
        _cancelled(draft)
    elif timing.has_run_out(draft.run, draft.now):
        expire_run(draft)
    elif any(step.state is StepState.COMPENSATED for step in draft.run.steps):
        draft.note("run.compensated", cause=draft.run.cause)
        draft.move_run(RunState.COMPENSATED)
    else:
        fail_run(draft, draft.run.cause)


def _cancelled(draft: Draft) -> None:
    """Go on with a run of which nothing is under way any more: with the undo that was asked for, or not at all."""
    if draft.run.cause == CANCELLED and something(draft):
        compensating(draft, CANCELLED)
        proceed(draft)
    else:
        draft.note("run.cancelled", code=CANCELLED)
        draft.move_run(RunState.CANCELLED, code=CANCELLED, cause=CANCELLED)


def something(draft: Draft) -> bool:
    """Whether some step has to be undone that is not being undone yet."""
    return _next(draft) is not None


def _next(draft: Draft) -> tuple[Node, Step] | None:
    """Return the step to undo next: those in doubt first, then in reverse order of completion."""
    if draft.run.no_undo:
        return None
    begun = {(step.undo_of, step.iteration) for step in draft.run.steps}
    candidates = [
        (step.finish_no or draft.run.finish_n + 1, node, step)
        for step in draft.run.steps
        if (step.name, step.iteration) not in begun
        and (node := draft.definition.node(step.name)) is not None
        and _to_undo(node, step)
    ]
    return max(candidates, key=lambda candidate: candidate[0])[1:] if candidates else None


def _to_undo(node: Node, step: Step) -> bool:
    if node.undo is None:
        return False
    given_up = step.state in {StepState.FAILED, StepState.SKIPPED}
    in_doubt = given_up and step.doubt and node.undo.blind
    return step.state is StepState.SUCCEEDED or in_doubt or (given_up and standing.partly_done(step))


def undone(draft: Draft, step: Step) -> None:
    """Record a finished undo and go on with the next."""
    done = draft.finish(step, StepState.COMPENSATED, code=None, message=None)
    draft.note("compensation.completed", done, undo_of=done.undo_of)
    proceed(draft)


def sent(draft: Draft, step: Step, timeout: timedelta) -> None:
    """Wait for the reply to the command by which a step is undone."""
    row = draft.move(step, StepState.WAITING, wake_at=retry.later(draft.now, timeout))
    draft.note("command.sent", row, undo_of=row.undo_of)


def unanswered(draft: Draft, node: Node, step: Step) -> Decision:
    """Undo again when the participant did not reply; it answers from its memory if it had."""
    failure = TryFailed(step.name, step.fence, "unknown", NO_REPLY, "no reply came in its time")
    return _again_or_stop(draft, node, step, failure, draft.now, announce=True)


def undo_failed(draft: Draft, node: Node, step: Step, failure: TryFailed) -> Decision:
    """Try the undo again later, or stop and call a person."""
    assert node.undo is not None
    start = retry.later(
        draft.now, retry.delay(node.undo.retry, step.attempt, draft.dice, failure.retry_after)
    )
    return _again_or_stop(draft, node, step, failure, start, announce=False)


def undo_lost(draft: Draft, node: Node, step: Step, code: str, message: str) -> Decision:
    """Try the undo again at once after its worker was lost; the old worker is fenced out."""
    failure = TryFailed(step.name, step.fence, "unknown", code, message)
    return _again_or_stop(draft, node, step, failure, draft.now, announce=True)


def _again_or_stop(
    draft: Draft, node: Node, step: Step, failure: TryFailed, start: datetime, *, announce: bool
) -> Decision:
    assert node.undo is not None
    draft.note(
        "compensation.failed", step, code=failure.code, message=failure.message, verdict=failure.verdict
    )
    told = {"code": failure.code, "message": failure.message, "fence": step.fence + announce}
    if failure.verdict in FOR_GOOD or retry.used_up(node.undo.retry, step, start):
        stopped = draft.move(step, StepState.COMPENSATION_FAILED, wake_at=draft.reminder(), **told)
        draft.note("incident.candidate", stopped, code=failure.code, undo_of=step.undo_of)
        proceed(draft)
        return draft.decision()
    wake_at = draft.first_nudge() if announce else start
    again = draft.move(step, StepState.COMPENSATION_PENDING, wake_at=wake_at, **told)
    draft.note("compensation.retry_scheduled", again, at=start.isoformat())
    if announce:
        draft.announce(again)
    return draft.decision()
