"""Whether something changed that a page shows: a mark that differs then, got without reading what."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import asyncpg

from ...recovery.permissions import Scope
from ...streams.queries import Queries
from .run import Sql as RunSql

#: By what pages are about: the tables whose changes may change them. Pages of others add their own.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "overview": ("run", "step", "dead_letter", "outbox_position", "worker", "tally"),
    "worklist": ("run", "step", "request", "dead_letter", "handover", "worker", "proposal", "bulk"),
    "runs": ("run",),
    "unknown": ("step", "reconciliation"),
    "letters": ("dead_letter", "hold"),
    "signals": ("signal",),
    "resources": ("resource", "resource_queue", "worker", "step"),
    "outbox": ("outbox_position", "dead_letter"),
    "replay": ("replay",),
    "bulk": ("bulk", "bulk_item"),
    "audit": ("audit_unsealed",),
}


#: What begins to stand still writes nothing: pages that show it are looked at anew after so many seconds at the latest.
LATEST: Final = 10
_BY_AGE: Final = frozenset({"overview", "worklist", "unknown", "resources"})


class Sql(Queries, file="live.sql"):
    """Queries of this module."""

    of_run: str
    of_tables: str


def run_of(about: str) -> UUID | None:
    """Return the run that a page is about: run:ID; None where it is about something else."""
    kind, _, rest = about.partition(":")
    try:
        return UUID(rest) if kind == "run" else None
    except ValueError:
        return None


def known(about: str) -> bool:
    """Whether anything can be told about that."""
    return about in TABLES or run_of(about) is not None


async def may_follow(connection: asyncpg.Connection[Any], scope: Scope, about: str) -> bool:
    """Whether it may be seen: a run only by who may see it."""
    run = run_of(about)
    if run is None:
        return about in TABLES
    row = await connection.fetchrow(RunSql.whose, run)
    return row is not None and scope.allows(row["tenant"], row["saga"])


async def mark(connection: asyncpg.Connection[Any], about: str) -> str:
    """Return a text that is another one once something has changed."""
    run = run_of(about)
    if run is not None:
        return await connection.fetchval(Sql.of_run, run) or "gone"
    every = LATEST if about in _BY_AGE else None
    found: str = await connection.fetchval(Sql.of_tables, list(TABLES[about]), every)
    return found
