"""Changes of runs on the pool of a process, in transactions of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from ..sagas.model import Limits
from .changes import Change, Changes, FactOf, InlineClaim

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

#: What a database raises that is away, restarting, switched over or refusing; asyncpg says InternalClientError on a
#: connection that was ended while it was idle and has not seen its end yet.
DATABASE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
#: History events that are errors in the log too.
_TOLD = frozenset(
    {"step.attempts_used_up", "step.manual_required", "run.failed", "run.compensating", "incident.candidate"}
)
#: SQLSTATE classes that say nothing about what was written: connection, transaction state (a standby is read-only),
#: rollback by serialization or deadlock, resources, object in use, operator intervention, system and internal errors.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_PASSING = frozenset({"08", "25", "40", "53", "55", "57", "58", "XX"})


def will_pass(error: BaseException) -> bool:
    """Tell whether one of DATABASE_ERRORS is the database's own trouble, so that the same write may succeed later."""
    state = getattr(error, "sqlstate", None)
    return not isinstance(state, str) or state[:2] in _PASSING


@dataclass(frozen=True)
class Engine:
    """`Changes` on a pool.

    Args:
        changes: Decides and stores.
        pool: Where runs live.
    """

    changes: Changes
    pool: asyncpg.Pool[Any]

    async def change(
        self,
        run_id: UUID,
        fact: FactOf,
        *,
        emitted: Sequence[OutboxRow] = (),
        inline: InlineClaim | None = None,
    ) -> Change | None:
        """Apply a fact on a pooled connection; arguments and result as `Changes.apply`."""
        async with self.pool.acquire() as proxy:
            connection = cast("asyncpg.Connection[Any]", proxy)
            change = await self.changes.apply(connection, run_id, fact, emitted=emitted, inline=inline)
        tell(change)
        return change


def tell(change: Change | None) -> None:
    """Say in the log what somebody should know of; history has it all."""
    if change is None or change.decision.answer != "changed":
        return
    run = change.decision.run
    for entry in change.decision.history:
        if entry.event in _TOLD:
            words = entry.data.get("code") or entry.data.get("cause") or ""
            logger.error("%s/%s %s: %s %s", run.saga, run.key, entry.step or "run", entry.event, words)


def changes_of(service: Milepost) -> Changes:
    """Return what decides for a service, with the times that its settings give."""
    settings = service.settings
    return Changes(
        service=service.name,
        definitions=service.definitions,
        clock=service.clock,
        ids=service.ids,
        randomness=service.randomness,
        limits=Limits(nudge=settings.nudge, slack=settings.lease),
    )
