"""What children and the items of fan-outs have in common: a run that is waited for, and one that is not wanted."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import asyncpg

from ..sagas.context import RunRef
from ..sagas.facts import Act
from ..sagas.model import Run
from ..sagas.words import CANCELLED_NO_UNDO
from ..streams.queries import Queries
from .engine import Engine, tell


class Sql(Queries, file="children.sql"):
    """Queries about children."""

    take_child: str
    find_child: str
    ended_badly: str
    child_started: str
    child_refused: str
    watch: str
    outcome: str
    child_ended: str
    parents: str
    audit_stop: str


async def watch(connection: asyncpg.Connection[Any], ref: RunRef) -> str | None:
    """Have a run tell of its end, and return how it has ended; None while it is under way."""
    await connection.execute(Sql.watch, ref.id)
    outcome: str | None = await connection.fetchval(Sql.outcome, ref.tenant, ref.saga, ref.key)
    return outcome


async def stop(engine: Engine, parent: Run, child: UUID) -> None:
    """Cancel a child, with undo where its parent is undone; one that is stopping already just goes on."""
    undo = not (parent.no_undo or parent.cause == CANCELLED_NO_UNDO)
    act = Act(
        "cancel",
        by=f"run {parent.saga}/{parent.key}",
        reason="its parent does not need it any more",
        undo=undo,
    )
    changes, change = engine.changes, None
    async with engine.pool.acquire() as proxy, proxy.transaction(isolation="read_committed"):
        connection = cast("asyncpg.Connection[Any]", proxy)
        change = await changes.apply(connection, child, act)
        if change is not None and change.decision.answer == "changed":
            before, after = change.before.run.state.value, change.decision.run.state.value
            stopped = (changes.ids.new(), child, act.by, act.reason, before, after, undo, parent.id)
            await connection.execute(Sql.audit_stop, *stopped)
    tell(change)
