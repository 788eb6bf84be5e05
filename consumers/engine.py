"""Changes of runs on the pool of a process, in transactions of their own."""

from __future__ import annotations

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
            return await self.changes.apply(connection, run_id, fact, emitted=emitted, inline=inline)


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
