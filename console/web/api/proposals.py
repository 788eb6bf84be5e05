"""Proposals: what an agent, a program or the system would do, and what persons say to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ....recovery import accepting
from ....recovery.permissions import EVERYTHING, Act, Scope, scope_of
from ....recovery.proposals import Proposal, proposals
from ....recovery.proposing import Idea, propose
from ..identity import Connected, Signed
from ..permitting import needs
from ..problems import Problem
from ..seeing import seen
from .described import READS, WRITES, IdempotencyKey
from .paging import Limit

router = APIRouter(prefix="/proposals", tags=["proposals"], responses=READS)

Words = Annotated[str, Field(min_length=1, max_length=4000)]
Parts = Annotated[dict[str, JsonValue], Field(max_length=100)]


class NewProposal(BaseModel):
    """What is proposed, and why.

    Attributes:
        act: Of a run, or of a letter.
        drift: How what is observed differs from what is expected.
        observed, expected: The state as it was found, and as it should be.
        idempotent: Doing it twice does no more than once.
        rollback: How it is taken back, or that it cannot be.
        arguments: What the act takes beside: undo (cancel), result (mark_succeeded), did_not_happen, budget.
        evidence: What speaks for it.
        hours: How long it may be accepted.
        seen: Version of the run that was looked at; left out: the present one.
    """

    model_config = ConfigDict(extra="forbid")

    act: Literal["retry", "skip", "mark_succeeded", "compensate", "resume", "cancel", "redrive", "ignore"]
    reason: Words
    drift: Words
    observed: Parts
    expected: Parts
    idempotent: bool
    rollback: Words
    run: UUID | None = None
    step: str | None = Field(default=None, min_length=1, max_length=200)
    iteration: str = Field(default="", max_length=100)
    letter: int | None = Field(default=None, ge=1, lt=2**63)
    arguments: Parts = {}
    evidence: Parts = {}
    hours: int = Field(default=24, ge=1, le=720)
    seen: str | None = Field(default=None, max_length=200)


class Why(BaseModel):
    """Why one says yes or no."""

    model_config = ConfigDict(extra="forbid")

    reason: Words


@router.get("", dependencies=[needs(Act.READ_PROPOSALS)])
async def list_proposals(
    *,
    actor: Signed,
    connection: Connected,
    run: UUID | None = None,
    by: Annotated[str | None, Query(max_length=200)] = None,
    open: Annotated[bool, Query(description="Only those that can be decided on.")] = False,
    limit: Limit = 100,
) -> list[Proposal]:
    """List proposals, the youngest first."""
    scope = scope_of(actor, Act.READ_PROPOSALS)
    return await proposals(connection, scope, run=run, by=by, only_open=open, limit=limit)


@router.get("/{proposal}", dependencies=[needs(Act.READ_PROPOSALS)])
async def show_proposal(proposal: UUID, actor: Signed, connection: Connected) -> Proposal:
    """Show a proposal."""
    _, scope = await seen(connection, actor, Act.READ_PROPOSALS, "proposal", proposal)
    return await _now(connection, scope, proposal)


@router.post("", dependencies=[needs(Act.PROPOSE)], responses=WRITES, status_code=201)
async def make_proposal(
    *,
    body: NewProposal,
    response: Response,
    actor: Signed,
    connection: Connected,
    idempotency_key: IdempotencyKey,
) -> Proposal:
    """Propose an act; the same proposal that stands already is not written twice."""
    if body.run is not None:
        await seen(connection, actor, Act.READ_RUNS, "run", body.run, doing=Act.PROPOSE)
    if body.letter is not None:
        await seen(connection, actor, Act.READ_LETTERS, "letter", body.letter, doing=Act.PROPOSE)
    given = body.model_dump(exclude={"hours"})
    made = await propose(connection, actor, Idea(**given, stands=timedelta(hours=body.hours)))
    response.headers["Location"] = f"/api/v1/proposals/{made}"
    return await _now(connection, EVERYTHING, made)


@router.post("/{proposal}/accept", dependencies=[needs(Act.ACCEPT_PROPOSAL)], responses=WRITES)
async def accept_proposal(
    proposal: UUID, body: Why, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> Proposal:
    """Accept a proposal: exactly what stands in it is asked for, while what it is about is as it was seen."""
    _, scope = await seen(
        connection, actor, Act.READ_PROPOSALS, "proposal", proposal, doing=Act.ACCEPT_PROPOSAL
    )
    await accepting.accept(connection, actor, proposal, reason=body.reason)
    return await _now(connection, scope, proposal)


@router.post("/{proposal}/reject", dependencies=[needs(Act.REJECT_PROPOSAL)], responses=WRITES)
async def reject_proposal(
    proposal: UUID, body: Why, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> Proposal:
    """Reject a proposal; nothing is done."""
    _, scope = await seen(
        connection, actor, Act.READ_PROPOSALS, "proposal", proposal, doing=Act.REJECT_PROPOSAL
    )
    await accepting.reject(connection, actor, proposal, reason=body.reason)
    return await _now(connection, scope, proposal)


async def _now(connection: asyncpg.Connection[Any], scope: Scope, proposal: UUID) -> Proposal:
    found = await proposals(connection, scope, id=proposal)
    if not found:
        raise Problem(404, "MP710", f"There is no proposal {proposal}, or none that you may see.")
    return found[0]
