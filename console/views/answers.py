"""What waits for a person's answer and is in no run's row: proposals, and acts on many that need a second person."""

from __future__ import annotations

from typing import Any

import asyncpg

from ...recovery.bulk import Bulk, bulks
from ...recovery.permissions import Scope
from ...recovery.proposals import Proposal, proposals
from ...schemas.states import Risk
from .work import WorkRow


async def answers(
    connection: asyncpg.Connection[Any], scope: Scope, *, saga: str | None, limit: int
) -> list[WorkRow]:
    """Return open proposals, and acts on many that are held.

    Args:
        saga: Only that workflow's proposals, and no acts on many.
        limit: At most so many of each.
    """
    open_ = await proposals(connection, scope, only_open=True, limit=limit)
    held = [] if saga is not None else await bulks(connection, scope, only_open=True, limit=limit)
    rows = [_proposal(one) for one in open_ if saga in {None, one.saga}]
    return rows + [_bulk(one) for one in held if one.state == "HELD"]


def _proposal(one: Proposal) -> WorkRow:
    return WorkRow(
        id=f"proposal:{one.id}",
        kind="proposal",
        title=one.subject,
        href=f"/recovery#proposal-{one.id}",
        run_id=one.run_id,
        tenant=one.tenant,
        service=one.service,
        saga=one.saga,
        state=one.state,
        code=one.drift,
        message=f"{one.act.replace('_', ' ')}, says {one.by}: {one.reason}",
        urgency=one.risk,
        since=one.at,
        possible=["accept", "reject"],
    )


def _bulk(one: Bulk) -> WorkRow:
    return WorkRow(
        id=f"bulk:{one.id}",
        kind="bulk",
        title=f"{one.act.replace('_', ' ')} {one.total:,} item{'' if one.total == 1 else 's'}",
        href=f"/bulk/{one.id}",
        state=one.state,
        message=f"{one.by}: {one.reason}",
        urgency=Risk.CRITICAL,
        since=one.at,
        possible=["confirm", "stop"],
    )
