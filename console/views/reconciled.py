"""Reconciliations: what was found out or repaired without a person, and on what evidence."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ...recovery.permissions import Scope
from ...streams.queries import Queries
from .masking import masked
from .model import View


class _Sql(Queries, file="reconciled.sql"):
    reconciliations: str


class Reconciliation(View):
    """One decision.

    Attributes:
        run: Saga and key; None where the run is gone, or it is about none.
        drift: How what was found differed from what was expected; '' for the answer of a probe.
        evidence: JSON; results are masked for who may not read payloads.
        level: Of the repair, 0 to 5; None for the answer of a probe.
    """

    id: UUID
    at: datetime
    tenant: str
    service: str
    run_id: UUID | None
    run: str | None
    step: str
    iteration: str
    drift: str
    subject: str
    before: str
    decision: str
    after: str
    level: int | None
    evidence: Any
    actor: str
    reason: str
    correlation_id: str


class Reconciliations(View):
    """Decisions, the youngest first; `next` is given as `before` for the next page."""

    reconciliations: list[Reconciliation]
    next: UUID | None


async def reconciliations(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    run: UUID | None = None,
    drift: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
    readable: bool = False,
) -> Reconciliations:
    """Return a page of reconciliations.

    Args:
        run: Only of this run.
        drift: Only of this kind.
        readable: Whether the reader may read payloads of all that the scope holds.
    """
    rows = await connection.fetch(_Sql.reconciliations, *scope.parameters(), run, drift, before, limit + 1)
    found = [_read(row, readable) for row in rows[:limit]]
    return Reconciliations(reconciliations=found, next=found[-1].id if len(rows) > limit else None)


def _read(row: Any, readable: bool) -> Reconciliation:
    evidence = json.loads(row["evidence"])
    if isinstance(evidence, dict) and "result" in evidence:  # what a probe has found is the step's result
        evidence = evidence | {"result": masked(evidence["result"], readable=readable)}
    made = {name: row[name] for name in Reconciliation.model_fields if name not in {"run", "evidence"}}
    return Reconciliation(
        **made,
        run=f"{row['saga']}/{row['key']}" if row["saga"] else None,
        evidence=masked(evidence, readable=True),
    )
