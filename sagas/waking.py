"""Beginnings, and what is found when somebody looks again: due rows, lost workers, runs that stand still."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ..schemas.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    HELD_STEP_STATES,
    RunState,
    StepKind,
    StepState,
)
from . import (
    advancing,
    approving,
    commanding,
    doubting,
    expiring,
    failing,
    fanning,
    forward,
    locking,
    parenting,
    retry,
    rolling,
    settling,
    undoing,
    waiting,
    waits,
)
from .definition import Node
from .draft import Draft
from .facts import Stale
from .model import Decision, Step
from .transitions import fits
from .words import HARD_TIMEOUT, OUTCOME_UNKNOWN, WORKER_LOST

_STOPPING_RUN = frozenset({RunState.COMPENSATING, RunState.CANCEL_REQUESTED})
_FORWARD_RUN = frozenset({RunState.PENDING, RunState.RUNNING, RunState.WAITING})


def start(draft: Draft) -> Decision:
    """Make the first row of a new run."""
    if draft.run.state is not RunState.PENDING or draft.run.steps or draft.run.queued_since is not None:
        return draft.ignored("the run has already begun")
    draft.note("run.started", version=draft.definition.version)
    if locking.queued(draft.run) and not draft.run.holds:
        return locking.enter(draft)
    advancing.advance(draft)
    return draft.decision()


def stale(draft: Draft, node: Node, step: Step, fact: Stale) -> Decision:
    """Take a row from a worker whose lease has ended."""
    if step.fence != fact.fence or step.state not in HELD_STEP_STATES:
        return draft.ignored(f"nobody holds {step.name} under fence {fact.fence}")
    # A try cannot have ended before it began, whatever lease it was begun under.
    ended_at = max(fact.lease_ended_at, step.started_at or fact.lease_ended_at)
    return _lost(draft, node, step, WORKER_LOST, ended_at)


def _lost(draft: Draft, node: Node, step: Step, code: str, ended_at: datetime) -> Decision:
    if step.state is StepState.RUNNING:
        return failing.lost(draft, node, step, code, ended_at)
    if step.state is StepState.COMPENSATING:
        return undoing.undo_lost(draft, node, step, code, failing.lost_words(code))
    if waits.is_open(step) and step.signal is not None:
        return waiting.signalled(draft, node, replace(step, fence=step.fence + 1), step.signal)
    return settling.probe_lost(draft, node, step, code)


def wake_step(draft: Draft, node: Node, step: Step, generation: int) -> Decision:
    """Act on a row whose `wake_at` has come; an older generation is a recorded no-op."""
    if step.generation != generation or step.state in FINAL_STEP_STATES or _too_early(draft, node, step):
        draft.note("timer.stale", step, generation=generation, state=step.state.value)
        return draft.ignored(
            f"{step.name} is {step.state} in generation {step.generation}: the timer is stale"
        )
    if step.state in HELD_STEP_STATES:
        return _lost(draft, node, step, HARD_TIMEOUT, draft.now)
    if waits.is_open(step) and step.signal is not None:
        return waiting.signalled(draft, node, step, step.signal)
    if step.state is StepState.WAITING:
        return _timed_out(draft, node, step)
    _look_again(draft, node, step)
    return draft.decision()


def _timed_out(draft: Draft, node: Node, step: Step) -> Decision:  # noqa: PLR0911 - one return per kind of row
    if step.kind is StepKind.UNDO:
        return undoing.unanswered(draft, node, step)
    if node.child is not None:
        return parenting.woken(draft, node, step)
    if node.each is not None:
        return fanning.woken(draft, node, step)
    if node.command is not None:
        return commanding.timed_out(draft, node, step)
    if node.approval is not None:
        return approving.expired(draft, node, step)
    if node.due is None:
        return waiting.timed_out(draft, node, step)
    draft.note("run.resumed", step, by="timer")
    forward.succeed(draft, step, None)
    return draft.decision()


def _look_again(draft: Draft, node: Node, step: Step) -> None:
    if step.state in {StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED}:
        if step.kind is not StepKind.UNDO and rolling.again(draft, node, step):
            return
        draft.note("step.reminder", step, code=step.code, state=step.state.value)
        draft.move(step, step.state, wake_at=draft.reminder())
    elif step.state is StepState.UNKNOWN and not node.can_ask:  # the step's policy has changed since
        waits.close(draft, step)
        doubting.person(draft, step, OUTCOME_UNKNOWN, step.message)
    elif step.state is StepState.RETRY_PENDING:
        draft.announce(draft.move(step, StepState.PENDING, wake_at=draft.first_nudge()))
    else:
        again = draft.move(step, step.state, wake_at=draft.next_nudge(step), nudges=step.nudges + 1)
        draft.announce(again)


def _too_early(draft: Draft, node: Node, step: Step) -> bool:
    """Whether a repeated timer meets the probe of a wait, whose generation does not rise while the wait is open."""
    if step.kind is not StepKind.WAIT or step.state is not StepState.RECONCILING or step.started_at is None:
        return False
    return draft.now < retry.later(step.started_at, node.attempt_timeout + draft.limits.slack)


def wake_run(draft: Draft) -> Decision:
    """Look at a run that has been silent, and never leave a live one without a live row."""
    run = draft.run
    if run.state in FINAL_RUN_STATES:
        draft.note("timer.stale", state=run.state.value)
        return draft.ignored(f"the run is {run.state}")
    draft.run = replace(run, wake_at=draft.next_look())
    for step in run.steps:
        node = draft.definition.node(step.name)
        if node is not None and step.signal is not None and waits.is_open(step) and fits(run.state, step):
            return waiting.signalled(draft, node, step, step.signal)
    if expiring.expired(draft):
        return draft.decision()
    if locking.queued(run):
        return locking.look(draft)
    if all(step.state in FINAL_STEP_STATES for step in run.steps):
        return heal(draft)
    return draft.decision()


def heal(draft: Draft) -> Decision:
    """Do again what should have followed the last final row of a run that stands still."""
    if draft.run.state in _STOPPING_RUN:
        draft.note("run.healed")
        undoing.proceed(draft)
    elif draft.run.state in _FORWARD_RUN:
        draft.note("run.healed")
        if draft.run.steps and draft.run.state is RunState.PENDING:
            draft.move_run(RunState.RUNNING)
        advancing.advance(draft)
    return draft.decision()
