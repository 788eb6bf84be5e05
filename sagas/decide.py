"""What follows from a fact: the one function that decides, and it decides everything.

Pure and total: no clock, no database, no broker, and an answer to every fact in every state. Whoever calls it stores
the decision in one transaction, under compare-and-set on the run's version, and decides anew when that fails.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never
from uuid import UUID

from ..schemas.states import RunState, StepKind, StepState
from . import (
    acting,
    budgets,
    commanding,
    failing,
    fanning,
    forward,
    limiting,
    parenting,
    settling,
    waiting,
    waking,
)
from .changing import replace
from .definition import Definition, Node
from .draft import Draft
from .facts import (
    Act,
    ChildSeen,
    Claim,
    Fact,
    HandedBack,
    Limited,
    Probed,
    Replied,
    Signalled,
    Stale,
    Start,
    Succeeded,
    TryFailed,
    Wake,
)
from .model import Decision, Limits, Run, Step
from .transitions import Cause, fit_together, fits

_CAUSES: dict[type, Cause] = {
    Start: "start",
    Wake: "timer",
    Stale: "sweep",
    Signalled: "signal",
    Replied: "signal",
    ChildSeen: "signal",
    Act: "person",
}


def decide(
    definition: Definition, run: Run, fact: Fact, now: datetime, *, dice: float, limits: Limits
) -> Decision:
    """Decide what follows from a fact. Never raises.

    Args:
        definition: The saga and version that the run is pinned to.
        run: The run with all of its step rows, as loaded in one statement.
        fact: What happened.
        now: The database's clock, timezone-aware.
        dice: Uniform in [0, 1), for full jitter.
        limits: Times that the deployment sets.

    Returns:
        The decision. Its `run.history_n` already counts its history rows, which are therefore numbered from
        `decision.run.history_n - len(decision.history) + 1`.
    """
    draft = Draft(definition, run, now, _CAUSES.get(type(fact), "worker"), dice, limits)
    if isinstance(fact, Start):
        return waking.start(draft)
    if isinstance(fact, Wake) and fact.step is None:
        return waking.wake_run(draft)
    if isinstance(fact, Act | Replied):
        return acting.act(draft, fact) if isinstance(fact, Act) else commanding.replied(draft, fact)
    step = run.step(fact.step or "", fact.iteration)
    node = None if step is None else acting.node_of(definition, step)
    if step is None or node is None:
        return draft.refused(f"{definition.title} has no step {fact.step} in run {run.saga}/{run.key}")
    if not fits(run.state, step) or _no_undo_failed(run):
        return draft.refused(
            f"{step.name} is {step.state} in a run that is {run.state}: this engine did not write that"
        )
    return _of_step(draft, node, budgets.charged(definition, step, fact, now), fact)


def _no_undo_failed(run: Run) -> bool:
    """Whether a run says that an undo of it has failed, and no row says which."""
    return run.state is RunState.COMPENSATION_FAILED and not fit_together(run.state, run.steps)


def _of_step(  # noqa: PLR0911 - one return per kind of fact
    draft: Draft,
    node: Node,
    step: Step,
    fact: Claim
    | Succeeded
    | TryFailed
    | HandedBack
    | Limited
    | Stale
    | Wake
    | Signalled
    | ChildSeen
    | Probed,
) -> Decision:
    match fact:
        case Claim():
            return forward.claim(draft, node, step, fact.worker)
        case Succeeded():
            return forward.succeeded(draft, node, step, fact)
        case TryFailed():
            return failing.try_failed(draft, node, step, fact)
        case HandedBack():
            return forward.handed_back(draft, node, step, fact.fence)
        case Limited():
            return limiting.limited(draft, step, fact.until, fact.limit)
        case Stale():
            return waking.stale(draft, node, step, fact)
        case Wake():
            return waking.wake_step(draft, node, step, fact.generation)
        case Signalled() | ChildSeen():
            return _told(draft, node, step, fact)
        case Probed():
            return _probed(draft, node, step, fact)
        case _:
            assert_never(fact)


def _told(draft: Draft, node: Node, step: Step, fact: Signalled | ChildSeen) -> Decision:
    """Answer what the orchestrator has been told of an event or a child."""
    if isinstance(fact, ChildSeen):
        if step.kind is StepKind.EACH:
            return fanning.seen(draft, node, step)
        if step.kind is not StepKind.CHILD:
            return draft.refused(f"{step.name} is no child")
        return parenting.seen(draft, node, step)
    if step.kind is not StepKind.WAIT:
        return draft.refused(f"{step.name} is no wait")
    return waiting.resume(draft, node, step, fact.generation, fact.payload)


def _probed(draft: Draft, node: Node, step: Step, fact: Probed) -> Decision:
    if step.state is not StepState.RECONCILING or step.fence != fact.fence:
        return forward.late(draft, step, fact.fence, probe=settling.told(fact.answer))
    if step.kind is StepKind.WAIT:
        return waiting.probed(draft, node, step, fact.answer)
    return settling.probed(draft, node, step, fact.answer)


def then_claim(
    definition: Definition, decision: Decision, worker: UUID, now: datetime, *, queue: str, limits: Limits
) -> Decision:
    """Let the worker that has just finished a step go on with the next one, in the same transaction.

    Args:
        decision: What `decide` said about the finished step.
        worker: Who finished it.
        queue: The queue that it works for.

    Returns:
        The decision with the claim folded in, its work no longer announced and `claimed` set, when all that it
        announces is one forward step of that queue; else the decision unchanged.
    """
    if decision.answer != "changed" or len(decision.work) != 1:
        return decision
    work = decision.work[0]
    step = decision.run.step(work.step, work.iteration)
    if work.lane != "work" or work.queue != queue or step is None or step.state is not StepState.PENDING:
        return decision
    if decision.run.state not in {RunState.PENDING, RunState.RUNNING}:
        return decision
    fact = Claim(work.step, worker, work.iteration)
    claim = decide(definition, decision.run, fact, now, dice=0.0, limits=limits)
    if claim.claimed is None:
        return decision
    changed = {(row.name, row.iteration): row for row in (*decision.changed, *claim.changed)}
    return replace(
        decision,
        run=claim.run,
        changed=tuple(changed.values()),
        history=(*decision.history, *claim.history),
        work=claim.work,
        claimed=claim.claimed,
    )
