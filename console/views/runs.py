"""Runs as they are searched: by id, key, correlation, workflow, state and time; a page at a time, youngest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict, Field

from ...recovery.permissions import Scope
from ...schemas.errors import UsageError
from ...schemas.states import RunState
from ...streams.queries import Queries
from ..model import ByPrefix, run_reference
from .reading import snapshot

#: Most rows of a page, and of an export.
PAGE, MOST = 50, 10_000
#: How far the clock of the process that made a run's id may be from the database's.
_SKEW = timedelta(days=1)
_LAST: Final = UUID(int=2**128 - 1)
_FIRST: Final = UUID(int=0)


class Sql(Queries, file="runs.sql"):
    """Queries of this module."""

    youngest: str
    by_state: str
    by_saga: str
    by_tenant: str
    hits: str
    lines: str
    now: str
    sagas: str


class Search(BaseModel):
    """Which runs are looked for.

    Attributes:
        q: A run's id or its first characters, a key, SAGA/KEY, or a correlation.
        states: Only these; empty for all.
        saga: Only that workflow.
        tenant: Only that tenant.
        begun: Began then or later.
        before: Began earlier than that.
        cursor: The id of the last run of the page before.
        limit: Rows at most.
    """

    model_config = ConfigDict(frozen=True)

    q: str = ""
    states: tuple[RunState, ...] = ()
    saga: str | None = None
    tenant: str | None = None
    begun: datetime | None = None
    before: datetime | None = None
    cursor: UUID | None = None
    limit: int = Field(default=PAGE, ge=1, le=MOST)


class RunRow(BaseModel):
    """A run in a list.

    Attributes:
        step: The step row that is live now, with its iteration; None without one.
        since: When its step's state began, else when the run last changed or ended.
    """

    model_config = ConfigDict(frozen=True)

    id: UUID
    tenant: str
    service: str
    saga: str
    key: str
    definition: int
    state: RunState
    code: str | None
    cause: str | None
    correlation: str
    step: str | None
    step_state: str | None
    tries: int | None
    since: datetime
    created_at: datetime
    finished_at: datetime | None

    @property
    def took(self) -> timedelta | None:
        """How long it took; None while it lives."""
        return None if self.finished_at is None else self.finished_at - self.created_at


class RunPage(BaseModel):
    """A page of runs.

    Attributes:
        next: The cursor of the next page; None on the last.
        now: The database's clock.
    """

    runs: list[RunRow]
    next: UUID | None
    now: datetime


async def search(connection: asyncpg.Connection[Any], scope: Scope, wanted: Search) -> RunPage:
    """Find runs.

    Args:
        connection: To the database.
        scope: What may be seen.
        wanted: Which.
    """
    async with snapshot(connection):
        now: datetime = await connection.fetchval(Sql.now)
        tenants, sagas = _narrowed(scope, wanted)
        if tenants == [] or sagas == []:
            return RunPage(runs=[], next=None, now=now)
        query, more = _query(wanted, tenants, sagas)
        low, high = _bounds(wanted)
        found = await connection.fetch(
            query,
            *(tenants, sagas, wanted.cursor or _LAST, wanted.begun, wanted.before),
            *([state.value for state in wanted.states], wanted.limit + 1, low, high, *more),
        )
        ids = [row["id"] for row in found]
        rows = await connection.fetch(Sql.lines, ids[: wanted.limit])
    runs = [_row(row) for row in rows]
    return RunPage(runs=runs, next=runs[-1].id if len(ids) > wanted.limit else None, now=now)


async def workflows(connection: asyncpg.Connection[Any], scope: Scope) -> list[str]:
    """Name the workflows that have runs and may be seen, at most 500."""
    return [row["saga"] for row in await connection.fetch(Sql.sagas, scope.parameters()[1])]


def _narrowed(scope: Scope, wanted: Search) -> tuple[list[str] | None, list[str] | None]:
    """Return tenants and sagas that are both allowed and wanted; None for all."""
    tenants, sagas = scope.parameters()
    return _only(tenants, wanted.tenant), _only(sagas, wanted.saga)


def _only(allowed: list[str] | None, one: str | None) -> list[str] | None:
    if one is None:
        return allowed
    return [one] if allowed is None or one in allowed else []


def _query(
    wanted: Search, tenants: Sequence[str] | None, sagas: Sequence[str] | None
) -> tuple[str, tuple[Any, ...]]:
    """Choose the index that leads to the fewest rows that are not wanted."""
    if wanted.q:
        return Sql.hits, (wanted.q, *_prefix(wanted.q))
    if wanted.states and RunState.SUCCEEDED not in wanted.states:
        return Sql.by_state, ()
    if tenants is not None and "" not in tenants:
        return Sql.by_tenant, ()
    return (Sql.by_saga if sagas is not None else Sql.youngest), ()


def _prefix(q: str) -> tuple[UUID, UUID]:
    """Return the bounds of the ids that begin like q; where none can, bounds that hold nothing."""
    try:
        named = run_reference(q.strip())
    except UsageError:
        return _LAST, _FIRST
    return (named.low, named.high) if isinstance(named, ByPrefix) else (_LAST, _FIRST)


def _bounds(wanted: Search) -> tuple[UUID, UUID]:
    """Return what a time says about ids, which begin with the instant at which they were made (RFC 9562, 5.7)."""
    low = _FIRST if wanted.begun is None else _at(wanted.begun - _SKEW, 0)
    high = _LAST if wanted.before is None else _at(wanted.before + _SKEW, 2**80 - 1)
    return low, high


def _at(instant: datetime, rest: int) -> UUID:
    millis = min(max(int(instant.timestamp() * 1000), 0), 2**48 - 1)
    return UUID(int=millis << 80 | rest)


def _row(row: asyncpg.Record) -> RunRow:
    label = f"{row['step']}#{row['iteration']}" if row["iteration"] else row["step"]
    return RunRow(
        **{
            name: row[name]
            for name in ("id", "tenant", "service", "saga", "key", "definition", "code", "cause")
        },
        state=RunState(row["state"]),
        correlation=row["correlation_id"],
        step=label,
        step_state=row["step_state"],
        tries=row["attempt"],
        since=row["step_since"] or row["finished_at"] or row["updated_at"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
    )
