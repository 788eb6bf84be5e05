"""Deciding on a proposal: accepting carries out what stands in it, while what it is about is as it was seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..sagas.facts import ActName
from ..schemas.errors import StateError
from ..schemas.ids import Ids, SystemIds
from . import audit
from .acting import Attempt, ask_for, keep_refusal, refuse
from .letters import LetterAct, act_on
from .permissions import EVERYTHING, Act, Actor, ActorKind, Grant, Role
from .proposals import OF_LETTERS, OF_RUNS, Proposal, Sql, proposals
from .requests import Confirmed, Request, check_words

_IDS = SystemIds()


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of a decision.

    Attributes:
        request: The request that carries an accepted act on a run out.
        outcome: What became of an act on a letter.
    """

    proposal: Proposal
    request: UUID | None = None
    outcome: str | None = None


async def accept(
    connection: asyncpg.Connection[Any], actor: Actor, id: UUID, *, reason: str, ids: Ids = _IDS
) -> Decided:
    """Accept a proposal: exactly what stands in it is asked for, on condition that what it is about is as it was seen.

    Args:
        connection: Without an open transaction.
        actor: A person other than the one who proposed it.
        reason: Why; the act's reason names it and the proposal's.

    Raises:
        UsageError: MP614 when who or why is not said.
        StateError: MP660 when that is not permitted, MP666 there is no such proposal, MP667 it was decided on before,
            MP668 it has expired or what it is about has changed, MP669 the actor has proposed it.
    """
    return await _decide(connection, actor, id, Act.ACCEPT_PROPOSAL, reason=reason, ids=ids)


async def reject(
    connection: asyncpg.Connection[Any], actor: Actor, id: UUID, *, reason: str, ids: Ids = _IDS
) -> Decided:
    """Reject a proposal; nothing is done. Arguments and errors as `accept`; who proposed it may take it back."""
    return await _decide(connection, actor, id, Act.REJECT_PROPOSAL, reason=reason, ids=ids)


async def _decide(
    connection: asyncpg.Connection[Any], actor: Actor, id: UUID, act: Act, *, reason: str, ids: Ids
) -> Decided:
    check_words(act.value, by=actor.name, reason=reason)
    async with connection.transaction(isolation="read_committed"):
        await connection.fetchval(Sql.lock, id)
        found = await proposals(connection, EVERYTHING, id=id)
        if not found:
            raise StateError(
                "MP666", f"there is no proposal {id}. `milepost proposals list` shows those there are."
            )
        one = found[0]
        attempt = _attempt(one, act, reason)
        problem = await refuse(connection, actor, attempt, ids=ids) or await _problem(
            connection, actor, one, attempt, ids
        )
        if problem is None:
            decide = _accepted if act is Act.ACCEPT_PROPOSAL else _rejected
            return await decide(connection, actor, one, reason, ids)
    raise problem  # after what was noted has committed


def _attempt(one: Proposal, act: Act, reason: str) -> Attempt:
    return Attempt(
        act=act,
        name="proposal.accept" if act is Act.ACCEPT_PROPOSAL else "proposal.reject",
        reason=reason,
        tenant=one.tenant,
        saga=one.saga,
        run=one.run_id,
        evidence={"proposal": str(one.id), "act": one.act, "subject": one.subject, "proposed_by": one.by},
    )


async def _problem(
    connection: asyncpg.Connection[Any], actor: Actor, one: Proposal, attempt: Attempt, ids: Ids
) -> StateError | None:
    """Say why a proposal cannot be decided on in this way, having kept that."""
    problem = None
    own = one.by.strip().casefold() == actor.name.strip().casefold()
    if own and attempt.act is Act.ACCEPT_PROPOSAL:
        problem = StateError("MP669", f"{actor.name} has proposed it, so somebody else has to accept it.")
    elif one.decided_at is not None:
        problem = StateError(
            "MP667", f"{one.subject}: it was {one.state} by {one.decided_by or 'nobody'} before."
        )
    elif one.state != "OPEN" and attempt.act is Act.ACCEPT_PROPOSAL:
        why = (
            "its time is over"
            if one.state == "EXPIRED"
            else "what it is about has changed since it was proposed"
        )
        problem = StateError("MP668", f"{one.subject}: {why}. Look at what is there now.")
        await connection.execute(Sql.decide, one.id, one.state, None, why, None, None)
    if problem is not None:
        await keep_refusal(connection, actor, attempt, str(problem), ids=ids)
    return problem


async def _rejected(
    connection: asyncpg.Connection[Any], actor: Actor, one: Proposal, reason: str, ids: Ids
) -> Decided:
    await connection.execute(Sql.decide, one.id, "REJECTED", actor.name, reason.strip(), None, None)
    await _keep(connection, actor, one, "REJECTED", reason=reason, ids=ids)
    return Decided(one)


async def _accepted(
    connection: asyncpg.Connection[Any], actor: Actor, one: Proposal, reason: str, ids: Ids
) -> Decided:
    words = f"{reason.strip()} (proposed by {one.by}: {one.reason})"[:4000]
    request, outcome = None, None
    if one.act in OF_RUNS:
        asked = await ask_for(connection, actor, _request(one, words), ids=ids, call="proposals accept")
        if asked.request is None:
            raise StateError(asked.code or "MP660", f"{one.subject}: {asked.text}.")
        request = asked.request
    elif one.act in OF_LETTERS:
        assert one.letter is not None
        # What was accepted is granted for this once, to a person who may accept it.
        granted = replace(actor, grants=(*actor.grants, Grant(Role.OPERATOR, frozenset({one.tenant}))))
        act = cast("LetterAct", one.act)
        done = await act_on(connection, granted, act, one.letter, reason=words, ids=ids)
        outcome = " ".join(filter(None, (done.word, done.text)))
    await connection.execute(Sql.decide, one.id, "ACCEPTED", actor.name, reason.strip(), request, outcome)
    await _keep(connection, actor, one, "ACCEPTED", reason=reason, ids=ids)
    return Decided(one, request, outcome)


def _request(one: Proposal, reason: str) -> Request:
    """Return exactly what was proposed, on the version that was seen."""
    assert one.run_id is not None
    arguments = one.arguments
    by_version = one.seen.isdigit()
    second = Confirmed(one.by, one.reason) if one.kind is ActorKind.PERSON else None
    return Request(
        run=one.run_id,
        what=cast("ActName", one.act),
        by="",
        reason=reason,
        step=one.step,
        iteration=one.iteration,
        fence=arguments.get("fence") if by_version else None,  # else the step is held to what was seen of it
        result=arguments.get("result"),
        undo=arguments.get("undo"),
        did_not_happen=bool(arguments.get("did_not_happen", False)),
        budget=arguments.get("budget"),
        run_version=int(one.seen) if by_version else None,
        proposal=one.id,
        confirmed=second,
    )


async def _keep(
    connection: asyncpg.Connection[Any], actor: Actor, one: Proposal, state: str, *, reason: str, ids: Ids
) -> None:
    attempt = _attempt(one, Act.ACCEPT_PROPOSAL if state == "ACCEPTED" else Act.REJECT_PROPOSAL, reason)
    entry = audit.Entry(
        act=attempt.name,
        reason=reason,
        tenant=one.tenant,
        run=one.run_id,
        step=one.step,
        before={"proposal": "OPEN"},
        after={"proposal": state},
        evidence=attempt.evidence,
    )
    await audit.write(connection, actor, entry, ids)
