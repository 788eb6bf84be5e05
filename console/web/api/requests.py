"""What was asked for: whether it was carried out, and the second person's yes or no."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ....recovery import seconding
from ....recovery.acting import Answer, answer_of
from ....recovery.permissions import Act, Actor, scope_of
from ....schemas.errors import StateError
from ..identity import Connected, Signed
from ..permitting import needs
from ..problems import Problem
from ..seeing import seen
from .described import READS, WRITES, IdempotencyKey
from .paging import Limit

router = APIRouter(prefix="/requests", tags=["requests"], responses=READS)


class Why(BaseModel):
    """Why one says yes or no."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=4000)


@router.get("/held", dependencies=[needs(Act.READ_RUNS)])
async def list_held(actor: Signed, connection: Connected, limit: Limit = 100) -> list[seconding.Held]:
    """List requests that wait for a second person, the oldest first."""
    return await seconding.held(connection, scope_of(actor, Act.READ_RUNS), limit=limit)


@router.get("/{request}", dependencies=[needs(Act.READ_RUNS)])
async def show_request(request: UUID, actor: Signed, connection: Connected) -> Answer:
    """Show what became of a request."""
    await seen(connection, actor, Act.READ_RUNS, "request", request)
    return await _now(connection, request)


@router.post("/{request}/confirm", dependencies=[needs(Act.CONFIRM)], responses=WRITES)
async def confirm_request(
    request: UUID, body: Why, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> Answer:
    """Confirm a request as the second person; the service then carries it out."""
    held = await _held(connection, actor, request)
    await seconding.confirm(connection, actor, held, reason=body.reason)
    return await _now(connection, request)


@router.post("/{request}/decline", dependencies=[needs(Act.DECLINE)], responses=WRITES)
async def decline_request(
    request: UUID, body: Why, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> Answer:
    """Say no to a request that waits for a second person; it is refused."""
    held = await _held(connection, actor, request)
    await seconding.decline(connection, actor, held, reason=body.reason)
    return await _now(connection, request)


async def _held(connection: asyncpg.Connection[Any], actor: Actor, request: UUID) -> seconding.Held:
    _, scope = await seen(connection, actor, Act.READ_RUNS, "request", request)
    found = await seconding.held(connection, scope, request=request)
    if not found:
        raise StateError("MP662", f"request {request} does not wait for a second person any more.")
    return found[0]


async def _now(connection: asyncpg.Connection[Any], request: UUID) -> Answer:
    found = await answer_of(connection, request)
    if found is None:
        raise Problem(404, "MP710", f"There is no request {request}, or none that you may see.")
    return found
