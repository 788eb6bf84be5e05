"""Going forward: the next row, the claim, the finish."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from ..schemas.states import RunState, StepState
from . import advancing, budgets, codec, doubting, expiring, fanning, guarding, retry, stopping, undoing
from .definition import Node
from .draft import Draft
from .facts import Succeeded
from .model import Decision, Json, Step

_CLAIMABLE_RUN = frozenset({RunState.PENDING, RunState.RUNNING, RunState.MANUAL_REQUIRED})
#: What was approved may go on while something else of the run awaits a person.
_UNDOABLE_RUN = frozenset({RunState.COMPENSATING, RunState.COMPENSATION_FAILED, RunState.MANUAL_REQUIRED})
_PROBABLE_RUN = frozenset(
    {
        RunState.RUNNING,
        RunState.WAITING,
        RunState.COMPENSATING,
        RunState.CANCEL_REQUESTED,
        RunState.MANUAL_REQUIRED,
    }
)


def succeed(draft: Draft, step: Step, result: Json) -> None:
    """Record a step's result and go on."""
    done = draft.finish(
        step, StepState.SUCCEEDED, result=result, doubt=False, doubt_at=None, code=None, message=None
    )
    draft.note("step.completed", done)
    advancing.go_on(draft, done)


def claim(draft: Draft, node: Node, step: Step, worker: UUID) -> Decision:
    """Give a step, a probe or an undo to a worker; a second worker gets nothing."""
    hard_timeout = retry.later(draft.now, node.attempt_timeout + draft.limits.slack)
    run = draft.run.state
    if step.state is StepState.PENDING and run in _CLAIMABLE_RUN and not draft.stopping:
        if (
            expiring.expired(draft)
            or guarding.void(draft, node, step)
            or doubting.forgotten(draft, node, step)
            or doubting.outlived(draft, node, step)
        ):
            return draft.decision()
        counted = budgets.begun(draft, step)
        if counted is None:
            return draft.decision()
        claimed = _take(draft, counted, StepState.RUNNING, worker, hard_timeout, attempt=step.attempt + 1)
        draft.note("step.started", claimed)
    elif step.state is StepState.UNKNOWN and run in _PROBABLE_RUN and node.can_ask:
        if node.probe is None and doubting.outlived(draft, node, step):
            return draft.decision()
        claimed = _take(draft, step, StepState.RECONCILING, worker, hard_timeout, probes=step.probes + 1)
        draft.note("step.probing", claimed, probe=claimed.probes, by="probe" if node.probe else "repeat")
    elif step.state is StepState.COMPENSATION_PENDING and run in _UNDOABLE_RUN:
        if guarding.void(draft, node, step):
            return draft.decision()
        claimed = _take(draft, step, StepState.COMPENSATING, worker, hard_timeout, attempt=step.attempt + 1)
        draft.note("compensation.started", claimed)
    else:
        return draft.refused(f"{step.name} is {step.state} in a run that is {run}: there is nothing to claim")
    return draft.decision(claimed=claimed)


def _take(
    draft: Draft,
    step: Step,
    state: StepState,
    worker: UUID,
    hard_timeout: datetime,
    *,
    attempt: int | None = None,
    probes: int | None = None,
) -> Step:
    return draft.move(
        step,
        state,
        wake_at=hard_timeout,
        worker=worker,
        fence=step.fence + 1,
        attempt=step.attempt if attempt is None else attempt,
        probes=step.probes if probes is None else probes,
        started_at=draft.now,
        first_at=step.first_at or draft.now,
        limited_until=None,
    )


def succeeded(draft: Draft, node: Node, step: Step, fact: Succeeded) -> Decision:
    """Take the result of a try; of an old fence or in another state it is only evidence."""
    fence, result = fact.fence, fact.result
    if step.fence == fence and step.state is StepState.RUNNING:
        if node.each is None:
            succeed(draft, step, result)
        else:
            fanning.listed(draft, step, fact.items)
        return draft.decision()
    if step.fence == fence and step.state is StepState.COMPENSATING:
        if fact.awaits_reply and node.command is not None:
            undoing.sent(draft, step, node.command.timeout)
        else:
            undoing.undone(draft, step)
        return draft.decision()
    if step.fence == fence and step.state in {StepState.SUCCEEDED, StepState.COMPENSATED}:
        return draft.ignored("this result is already recorded")
    return late(draft, step, fence, sha256=codec.digest(result).hex())


def late(draft: Draft, step: Step, fence: int, **evidence: Json) -> Decision:
    """Keep what a worker says that no longer holds the step: evidence for people, nothing more."""
    draft.note("step.late_result", step, fence=fence, state=step.state.value, **evidence)
    return draft.ignored(
        f"fence {fence} no longer holds {step.name}, which is {step.state} under fence {step.fence}"
    )


def handed_back(draft: Draft, node: Node, step: Step, fence: int) -> Decision:
    """Take back what a stopping worker had not begun."""
    if step.fence != fence:
        return draft.ignored("an older fence gives back what it no longer holds")
    back = {
        StepState.RUNNING: StepState.PENDING,
        StepState.RECONCILING: StepState.UNKNOWN,
        StepState.COMPENSATING: StepState.COMPENSATION_PENDING,
    }.get(step.state)
    if back is None:
        return draft.ignored(f"{step.name} is {step.state}: nobody holds it")
    probing = step.state is StepState.RECONCILING
    attempt = step.attempt if probing else step.attempt - 1
    if step.state is StepState.RUNNING and draft.stopping:
        draft.note("step.handed_back", step)
        stopping.let_go(draft, node, replace(step, attempt=attempt))
        undoing.proceed(draft)
        return draft.decision()
    returned = draft.move(
        step,
        back,
        wake_at=draft.first_nudge(),
        attempt=attempt,
        probes=step.probes - 1 if probing else step.probes,
        first_at=step.first_at if attempt or probing else None,
    )
    draft.note("step.handed_back", step)
    draft.announce(returned)
    advancing.tidy(draft)
    return draft.decision()
