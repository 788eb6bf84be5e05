"""Before a process starts: every open run must have its definition in some process, this one or another that lives."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .handing import Sql
from .open_model import Live, OpenRuns, refusals

if TYPE_CHECKING:
    import asyncpg

    from .app import Milepost

logger = logging.getLogger("milepost")

#: How long what a refused process had counts as being somewhere: platforms start it again within five minutes
#: (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
REFUSED_COUNTS = timedelta(minutes=10)
#: Runs a query, as asyncpg's pools and connections do.
Fetch = Callable[..., Awaitable[Sequence[Any]]]


async def read_open_runs(fetch: Fetch, service: str) -> list[OpenRuns]:
    """Read what the open runs of a service are pinned to: one walk over its live runs."""
    rows = await fetch(Sql.open_runs, service)
    return [
        OpenRuns(**{**row, "outline": None if row["outline"] is None else json.loads(row["outline"])})
        for row in rows
    ]


async def read_live(fetch: Fetch, service: str) -> list[Live]:
    """Read what the live processes of a service have, and those that are about to be started again."""
    rows = await fetch(Sql.live_definitions, service, REFUSED_COUNTS)
    return [Live(frozenset(row["pins"]), frozenset(row["definitions"])) for row in rows]


def rolled_back(text: str) -> list[str]:
    """Read MILEPOST_ROLLED_BACK."""
    return [part.strip() for part in text.split(",") if part.strip()]


async def check_open_runs(service: Milepost, pool: asyncpg.Pool[Any]) -> None:
    """Refuse to start while open runs have their definition nowhere, and register those of this process.

    Raises:
        StartError: MP201 for the first such definition; the others are in the log.
    """
    opened: Sequence[OpenRuns] = await read_open_runs(pool.fetch, service.name)
    live = await read_live(pool.fetch, service.name)
    found = refusals(service.definitions, opened, live, rolled_back(service.settings.rolled_back))
    for refusal in found[1:]:
        logger.error("%s", refusal)
    if found:
        await pool.execute(Sql.note_refusal, service.name, service.definitions.pins)
        raise found[0]
    for definition in service.definitions:
        await pool.execute(
            Sql.register_definition,
            service.name,
            definition.name,
            definition.version,
            definition.shape,
            definition.policy,
            json.dumps(definition.outline, ensure_ascii=False),
        )
