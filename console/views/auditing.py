"""The audit, as pages and files have it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ...recovery.auditing import AuditEntry, AuditFilter, entries
from ...recovery.permissions import Scope
from .model import View


class AuditRow(View):
    """An entry.

    Attributes:
        run: The run's saga and key; None where it is about none, or the run is gone.
        before, after, evidence: JSON.
        place: Its place in the chain of hashes; None while it waits for one.
        about: Whom or what it is about, for people; '' where nothing that it kept says so.
    """

    id: UUID
    at: datetime
    tenant: str
    actor: str
    kind: str
    act: str
    outcome: str
    run_id: UUID | None
    run: str | None
    step: str | None
    reason: str
    before: str
    after: str
    evidence: str
    place: int | None
    about: str


class AuditRows(View):
    """A page of the audit, the youngest first.

    Attributes:
        next: Where the next page begins; None on the last.
    """

    rows: list[AuditRow]
    next: tuple[datetime, UUID] | None


async def audit(
    connection: asyncpg.Connection[Any], scope: Scope, wanted: AuditFilter, *, limit: int = 50
) -> AuditRows:
    """Return a page of the audit."""
    found = await entries(connection, scope, wanted, limit=limit + 1)
    rows = [_row(entry) for entry in found[:limit]]
    return AuditRows(rows=rows, next=(rows[-1].at, rows[-1].id) if len(found) > limit else None)


def _row(entry: AuditEntry) -> AuditRow:
    plain = {name: getattr(entry, name) for name in AuditRow.model_fields}
    parts = {name: json.dumps(plain[name], ensure_ascii=False) for name in ("before", "after", "evidence")}
    return AuditRow(**(plain | parts))
