"""What waits beside runs: unknown outcomes, held keys, signals, locks and queues."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from ....recovery.permissions import Act, scope_of
from ...views import unknown as doubts
from ...views import waiting as views
from ...views.payload import Payload
from ..identity import Connected, Signed
from ..permitting import may, needs
from ..seeing import seen
from .described import READS
from .paging import Cursor, Limit, Page, cursor_of, read_cursor

router = APIRouter(tags=["waiting"], responses=READS)

Text = Annotated[str | None, Query(max_length=500)]


@router.get("/unknown", dependencies=[needs(Act.READ_RUNS)])
async def list_unknown(actor: Signed, connection: Connected, limit: Limit = 50) -> doubts.Doubts:
    """List steps whose outcome nobody knows, with the evidence, the oldest first."""
    return await doubts.unknown(connection, scope_of(actor, Act.READ_RUNS), limit=limit)


@router.get("/holds", dependencies=[needs(Act.READ_LETTERS)])
async def list_holds(
    actor: Signed, connection: Connected, consumer: Text = None, limit: Limit = 100
) -> views.Holds:
    """List held keys, the longest held first, each with the line behind it."""
    return await views.holds(
        connection,
        scope_of(actor, Act.READ_LETTERS),
        consumer=consumer,
        limit=limit,
        payloads=scope_of(actor, Act.READ_PAYLOAD),
    )


@router.get("/signals", dependencies=[needs(Act.READ_SIGNALS)])
async def list_signals(
    *,
    actor: Signed,
    connection: Connected,
    state: views.SignalState | None = None,
    type: Text = None,
    key: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[views.Signal]:
    """List signals, the youngest first."""
    found = await views.signals(
        connection,
        scope_of(actor, Act.READ_SIGNALS),
        state=state,
        type=type,
        key=key,
        before=read_cursor(cursor, UUID),
        limit=limit,
    )
    return Page(items=found.signals, next=cursor_of(found.next))


@router.get("/signals/{signal}/payload", dependencies=[needs(Act.READ_SIGNALS)])
async def show_signal(signal: UUID, actor: Signed, connection: Connected) -> Payload:
    """Show what a signal says, to who may read payloads."""
    own, scope = await seen(connection, actor, Act.READ_SIGNALS, "signal", signal)
    readable = may(actor, Act.READ_PAYLOAD, tenant=own.tenant, saga=own.saga)
    return await views.signal_payload(connection, scope, signal, readable=readable)


@router.get("/resources", dependencies=[needs(Act.READ_RESOURCES)])
async def list_resources(
    actor: Signed, connection: Connected, name: Text = None, limit: Limit = 100
) -> views.Resources:
    """List locks, those that somebody waits for first; queues, and the processes that serve them."""
    return await views.resources(connection, scope_of(actor, Act.READ_RESOURCES), name=name, limit=limit)


@router.get("/resources/line", dependencies=[needs(Act.READ_RESOURCES)])
async def list_line(
    actor: Signed,
    connection: Connected,
    name: Annotated[str, Query(max_length=500)],
    tenant: Annotated[str, Query(max_length=200)] = "",
    limit: Limit = 100,
) -> list[views.Waiter]:
    """List who waits for a lock, in the order in which they get it."""
    scope = scope_of(actor, Act.READ_RESOURCES)
    return await views.resource_line(connection, scope, tenant, name, limit=limit)
