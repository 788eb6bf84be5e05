"""The audit: who did what, or was not let, and whether it is as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from ....recovery.auditing import AuditEntry, AuditFilter, entries
from ....recovery.permissions import Act, scope_of
from ....recovery.verifying import Verified, verify
from ...views.flow import whole
from ...views.masking import masked
from ..identity import Connected, Signed
from ..permitting import needs, refused
from .described import READS, Instant
from .paging import Cursor, Limit, Page, encode, read_cursor

router = APIRouter(prefix="/audit", tags=["audit"], responses=READS)

Text = Annotated[str | None, Query(max_length=200)]


@router.get("", dependencies=[needs(Act.READ_AUDIT)])
async def list_audit(
    *,
    actor: Signed,
    connection: Connected,
    act: Annotated[
        str | None, Query(max_length=100, description="Such as run.cancel; run: all of runs.")
    ] = None,
    by: Text = None,
    kind: Literal["PERSON", "SYSTEM", "AGENT"] | None = None,
    outcome: Literal["DONE", "HELD", "REFUSED"] | None = None,
    run: UUID | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[AuditEntry]:
    """List entries, the youngest first."""
    wanted = AuditFilter(
        since=since,
        until=until,
        actor=by,
        kind=kind,
        act=act,
        outcome=outcome,
        run=run,
        before=_place(cursor),
    )
    found = await entries(connection, scope_of(actor, Act.READ_AUDIT), wanted, limit=limit + 1)
    shown = [_shown(one) for one in found[:limit]]
    following = encode(f"{shown[-1].at.isoformat()} {shown[-1].id}") if len(found) > limit else None
    return Page(items=shown, next=following)


@router.get("/verified", dependencies=[needs(Act.READ_AUDIT)])
async def verify_audit(actor: Signed, connection: Connected) -> Verified:
    """Go along the whole chain, and tell the first entry that is not as it was."""
    if not whole(scope_of(actor, Act.READ_AUDIT)):
        raise refused(actor, Act.READ_AUDIT)
    return await verify(connection)


def _place(cursor: str | None) -> tuple[datetime, UUID] | None:
    def read(text: str) -> tuple[datetime, UUID]:
        at, _, name = text.partition(" ")
        found = datetime.fromisoformat(at)
        if found.tzinfo is None:
            raise ValueError("no zone")
        return found, UUID(name)

    return read_cursor(cursor, read)


def _shown(entry: AuditEntry) -> AuditEntry:
    """Return an entry without what is called like a secret."""
    parts = {name: masked(getattr(entry, name), readable=True) for name in ("before", "after", "evidence")}
    return replace(entry, **parts)
