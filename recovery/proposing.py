"""Proposing: what an agent or the system would do and may not do alone, written for a person to decide on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ..sagas.model import Json
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import Ids, SystemIds
from ..schemas.states import Level, Risk
from . import audit
from .acting import Attempt, Subject, keep_refusal, refuse, subject_of
from .model import Observation, Plan
from .permissions import Act, Actor, ActorKind, Permission, permission
from .proposals import OF_LETTERS, OF_RUNS, Sql, rests_on
from .requests import check_words

_IDS = SystemIds()
#: How long a proposal stands when nothing else is said.
STANDS = timedelta(hours=24)
_OF_STEPS = frozenset({"retry", "skip", "mark_succeeded"})
#: What an act may be proposed with.
_ARGUMENTS = {
    "retry": {"fence", "did_not_happen", "budget"},
    "skip": {"fence", "did_not_happen"},
    "mark_succeeded": {"fence", "result"},
    "compensate": {"did_not_happen"},
    "cancel": {"undo", "did_not_happen"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """What is proposed.

    Attributes:
        act: retry, skip, mark_succeeded, compensate, resume or cancel of a run; redrive or ignore of a letter.
        run: The run it is about; None for a letter.
        letter: The letter's number; None for a run.
        drift: How what is observed differs from what is expected, in a word or a sentence.
        observed: The state as it was found.
        expected: The state as it should be.
        idempotent: Doing it twice does no more than once.
        rollback: How it is taken back, or that it cannot be.
        reason: Why.
        arguments: What the act takes beside: undo (cancel), result (mark_succeeded), did_not_happen, budget.
        evidence: What speaks for it.
        stands: How long it may be accepted.
        seen: The version of what was looked at, as a string; by default the present one. What is about a step rests on
            that step as it stands at that version, and not on the version.
    """

    act: str
    reason: str
    drift: str
    observed: Mapping[str, Json]
    expected: Mapping[str, Json]
    idempotent: bool
    rollback: str
    run: UUID | None = None
    step: str | None = None
    iteration: str = ""
    letter: int | None = None
    arguments: Mapping[str, Json] = field(default_factory=dict)
    evidence: Mapping[str, Json] = field(default_factory=dict)
    stands: timedelta = STANDS
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What a proposal is about, and its version."""

    tenant: str
    service: str
    saga: str | None
    subject: str
    seen: str
    risk: Risk


async def propose(connection: asyncpg.Connection[Any], actor: Actor, idea: Idea, *, ids: Ids = _IDS) -> UUID:
    """Write a proposal, in a transaction of its own; the same one that stands already is not written twice.

    Args:
        actor: Who proposes.

    Returns:
        The proposal's id.

    Raises:
        UsageError: MP614 without who or why, MP670 for what cannot be proposed.
        StateError: MP604 there is no such run, MP440 no such letter, MP660 when it is not permitted.
    """
    check_words("propose", by=actor.name, reason=idea.reason)
    _check(idea)
    about = await _about(connection, idea)
    attempt = Attempt(
        act=Act.PROPOSE,
        name="proposal.open",
        reason=idea.reason,
        tenant=about.tenant,
        saga=about.saga,
        run=idea.run,
        evidence={"subject": about.subject, "act": idea.act},
    )
    refused = await refuse(connection, actor, attempt, ids=ids)
    if refused is None:
        what = permission(actor, Act(idea.act), tenant=about.tenant, saga=about.saga, risk=about.risk)
        if what is Permission.FORBIDDEN:
            text = f"{actor.name} may not even propose {idea.act} of {about.subject}"
            await keep_refusal(connection, actor, attempt, text, ids=ids)
            refused = StateError("MP660", f"{text}.")
    if refused is not None:
        raise refused
    return await write_proposal(connection, actor, idea, about, ids=ids)


async def write_proposal(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    idea: Idea,
    about: About,
    *,
    reconciliation: UUID | None = None,
    ids: Ids = _IDS,
) -> UUID:
    """Write a proposal that is permitted, in the open transaction or one of its own; as `propose`."""
    arguments = json.dumps(idea.arguments, ensure_ascii=False)
    async with connection.transaction():
        await connection.execute(Sql.clear_old, about.subject, idea.act)
        written: UUID | None = await connection.fetchval(
            Sql.insert,
            ids.new(),
            *(about.tenant, about.service, about.saga, idea.run, idea.step, idea.iteration, idea.letter),
            *(about.subject, idea.drift, _json(idea.observed), _json(idea.expected), idea.act, arguments),
            *(about.risk.value, idea.idempotent, idea.rollback, _needed(actor, about.risk), about.seen),
            *(
                actor.name,
                actor.kind.value,
                idea.reason.strip(),
                _json(idea.evidence),
                reconciliation,
                idea.stands,
            ),
        )
        if written is None:
            standing: UUID = await connection.fetchval(
                Sql.same, about.subject, idea.act, about.seen, arguments
            )
            return standing
        entry = audit.Entry(
            act="proposal.open",
            reason=idea.reason,
            tenant=about.tenant,
            run=idea.run,
            step=idea.step,
            after={"proposal": "OPEN"},
            evidence={
                "proposal": str(written),
                "act": idea.act,
                "subject": about.subject,
                "risk": about.risk.value,
            },
        )
        await audit.write(connection, actor, entry, ids)
    return written


def _needed(actor: Actor, risk: Risk) -> int:
    """One person accepts; CRITICAL takes two, of whom the one who proposed may be one."""
    return 2 if risk is Risk.CRITICAL and actor.kind is not ActorKind.PERSON else 1


def _json(found: Mapping[str, Json]) -> str:
    return json.dumps(dict(found), default=str, ensure_ascii=False)


def _check(idea: Idea) -> None:
    """Refuse what no act could be made of.

    Raises:
        UsageError: MP670.
    """
    problem = ""
    if idea.act not in OF_RUNS | OF_LETTERS:
        problem = f"{idea.act} cannot be proposed; there are {', '.join(sorted(OF_RUNS | OF_LETTERS))}"
    elif (idea.act in OF_LETTERS) != (idea.letter is not None) or (idea.act in OF_RUNS) != (
        idea.run is not None
    ):
        problem = (
            f"{idea.act} is about a {'letter' if idea.act in OF_LETTERS else 'run'}, and about nothing else"
        )
    elif (idea.act in _OF_STEPS) != (idea.step is not None):
        problem = f"{idea.act} {'names a step' if idea.act in _OF_STEPS else 'is about the whole run'}"
    elif odd := sorted(set(idea.arguments) - _ARGUMENTS.get(idea.act, set())):
        problem = f"{idea.act} takes no {', '.join(odd)}"
    elif idea.act == "cancel" and not isinstance(idea.arguments.get("undo"), bool):
        problem = "cancel says whether what was done is undone: undo is true or false"
    elif not idea.drift.strip() or not idea.rollback.strip():
        problem = "say what has drifted, and how the act is taken back or that it cannot be"
    elif not timedelta(minutes=1) <= idea.stands <= timedelta(days=30):
        problem = "it may stand from a minute to 30 days"
    if problem:
        raise UsageError("MP670", f"propose: {problem}.")


async def _about(connection: asyncpg.Connection[Any], idea: Idea) -> About:
    if idea.letter is not None:
        row = await connection.fetchrow(Sql.letter, idea.letter)
        if row is None:
            raise StateError("MP440", f"letter {idea.letter}: there is no such letter.")
        seen = idea.seen or row["seen"]
        return About(row["tenant"], "", None, f"letter {idea.letter}", seen, Risk.LOW)
    assert idea.run is not None
    found: Subject = await subject_of(connection, idea.run, idea.step, idea.iteration)
    if idea.step is not None and found.step_state is None:
        raise StateError("MP617", f"{found.saga}/{found.key}: it has no step {idea.step} (yet).")
    step = f" {idea.step}" + (f"#{idea.iteration}" if idea.iteration else "") if idea.step else ""
    subject = f"{found.saga}/{found.key}{step}"
    return About(found.tenant, found.service, found.saga, subject, _seen(idea, found), found.risk)


def _seen(idea: Idea, found: Subject) -> str:
    """Return what a proposal rests on: of a step only what it says itself; what was seen before it moved is that."""
    version = str(found.version)
    if idea.seen not in {None, version} or found.step_state is None:
        return idea.seen or version
    fence, probes = found.fence or 0, found.probes or 0
    if idea.arguments.get("fence") not in {None, fence}:
        return f"fence {idea.arguments['fence']}"
    return rests_on(found.state, found.step_state, fence=fence, probes=probes)


@dataclass(frozen=True, slots=True)
class DriftProposals:
    """Where plans of a reconciler wait for a person; carried out by the next pass that sees the same state.

    Attributes:
        stands: How long such a proposal may be accepted.
    """

    ids: Ids = _IDS
    stands: timedelta = STANDS

    async def propose(
        self,
        connection: asyncpg.Connection[Any],
        seen: Observation,
        plan: Plan,
        *,
        by: str,
        reconciliation: UUID,
    ) -> UUID | None:
        """Write a proposal in the open transaction."""
        risk = Risk.HIGH if plan.level > Level.SAFE_RETRY else Risk.MEDIUM
        about = About(seen.tenant, seen.service, seen.saga, seen.label, seen.agreed_to, risk)
        idea = Idea(
            act="reconcile",
            reason=plan.reason,
            drift=seen.drift.value,
            observed={"state": seen.state, "since": seen.since.isoformat()},
            expected={"action": plan.action.value},
            idempotent=True,
            rollback="see the runbook of this drift",
            run=seen.run,
            step=seen.step,
            iteration=seen.iteration,
            arguments={"drift": seen.drift.value, "action": plan.action.value, "subject": seen.subject},
            evidence={**seen.evidence, **plan.evidence},
            stands=self.stands,
        )
        actor = Actor(by, ActorKind.SYSTEM, ())
        return await write_proposal(
            connection, actor, idea, about, reconciliation=reconciliation, ids=self.ids
        )

    async def agreed(self, connection: asyncpg.Connection[Any], seen: Observation, plan: Plan) -> str | None:
        """Return who has accepted a plan for a thing in the state that was seen; None when nobody has."""
        return await agreed(connection, seen, plan)


async def agreed(connection: asyncpg.Connection[Any], seen: Observation, plan: Plan) -> str | None:
    """Return who has accepted a plan for a thing in the state that was seen; None when nobody has."""
    row = await connection.fetchrow(Sql.accepted, seen.subject, seen.agreed_to, plan.action.value)
    return None if row is None else str(row["decided_by"])
