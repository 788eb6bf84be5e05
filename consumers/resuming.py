"""Asking for a look at what a run rests on, and reading what it found; in the transaction of the request."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg

from ..sagas.resuming import Checked, Reason, concerns
from ..streams.queries import Queries
from .changes import Changes
from .store import load_run


class Sql(Queries, file="resuming.sql"):
    """Queries of looking before going on."""

    find_check: str
    want_check: str
    claim_check: str
    rests_on: str
    end_check: str
    audit_check: str


def reasons_of(text: str) -> tuple[Reason, ...]:
    """Read reasons as they are stored."""
    return tuple(Reason(**found) for found in json.loads(text))


async def verdict(
    connection: asyncpg.Connection[Any], changes: Changes, row: asyncpg.Record, wish: Any
) -> Checked | bool | None:
    """Say what a look at a request's run has found.

    Args:
        row: The request, locked.
        wish: The request as a fact about a loaded run.

    Returns:
        What was found; None where nothing has to be looked at; False while nobody has looked yet, which is asked for.
    """
    loaded = await load_run(connection, row["run_id"])
    if loaded is None:
        return None
    run = loaded.run
    definition = changes.definitions.of(run)
    if definition is None or not concerns(definition, run, row["what"]):
        return None
    decision = changes.decide(loaded, wish)
    if decision is None or decision.answer != "changed":
        return None  # refused or moved anyway, so nothing has to be looked at
    found = await connection.fetchrow(Sql.find_check, row["id"])
    if found is not None and found["state"] == "OPEN" and found["run_version"] == run.version:
        return False
    if found is None or found["state"] == "OPEN" or found["run_version"] != run.version:
        await connection.execute(Sql.want_check, row["id"], run.tenant, changes.service, run.id, run.version)
        return False
    checked = Checked(found["state"], run.version, reasons_of(found["reasons"]))
    if checked.outcome == "REVIEW_REQUIRED" and await _seen(connection, row["reviewed"], checked):
        checked = Checked("REVIEWED", run.version, checked.reasons)
    await _audit(connection, changes, row, run.tenant, checked)
    return checked


async def _seen(connection: asyncpg.Connection[Any], reviewed: UUID | None, checked: Checked) -> bool:
    """Whether the person has read every reason that was found now."""
    row = None if reviewed is None else await connection.fetchrow(Sql.find_check, reviewed)
    return row is not None and set(checked.reasons) <= set(reasons_of(row["reasons"]))


async def _audit(
    connection: asyncpg.Connection[Any], changes: Changes, row: asyncpg.Record, tenant: str, checked: Checked
) -> None:
    evidence = {"request": str(row["id"]), "reasons": [reason.json for reason in checked.reasons]}
    await connection.execute(
        Sql.audit_check,
        changes.ids.new(),
        tenant,
        row["by"],
        row["run_id"],
        row["reason"],
        checked.outcome,
        json.dumps(evidence, ensure_ascii=False),
    )
