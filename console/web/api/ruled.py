"""What was decided without a person, and who may do what."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from ....recovery.permissions import Act, scope_of
from ...views import reconciled as views
from ...views.describing import Allowance, permissions_view
from ..identity import Connected, Signed
from ..permitting import needs
from .described import READS
from .paging import Cursor, Limit, Page, cursor_of, read_cursor

router = APIRouter(responses=READS)


@router.get("/reconciliations", tags=["reconciliations"], dependencies=[needs(Act.READ_RUNS)])
async def list_reconciliations(
    *,
    actor: Signed,
    connection: Connected,
    run: UUID | None = None,
    drift: Annotated[str | None, Query(max_length=100)] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[views.Reconciliation]:
    """List what was found out or repaired without a person, the youngest first."""
    scope = scope_of(actor, Act.READ_RUNS)
    found = await views.reconciliations(
        connection,
        scope,
        run=run,
        drift=drift,
        before=read_cursor(cursor, UUID),
        limit=limit,
        readable=scope_of(actor, Act.READ_PAYLOAD) == scope,
    )
    return Page(items=found.reconciliations, next=cursor_of(found.next))


@router.get("/permissions", tags=["me"], dependencies=[needs(Act.READ_PERMISSIONS)])
async def list_permissions(actor: Signed) -> list[Allowance]:
    """List what each role may do about each act, where it is granted."""
    return permissions_view()
