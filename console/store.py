"""What operators read, from the database alone. Every connection here only reads."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ..recovery.ages import Age
from ..recovery.observing import look
from ..schemas.errors import StateError, UsageError
from ..schemas.states import RunState, StepKind, StepState
from ..streams.database import CANNOT_CONNECT, cannot_reach
from ..streams.queries import Queries
from .locks import LockLine
from .model import ByKey, ByPrefix, HistoryLine, Lag, RunDetail, RunLine, StepLine, Unsent

#: How long connecting may take, in seconds.
CONNECT_TIMEOUT = 10.0


class Sql(Queries):
    """Queries of this room."""

    server: str
    schema_version: str
    list_runs: str
    sagas: str
    now: str
    find_key: str
    find_key_of_tenants: str
    find_ids: str
    load_run: str
    load_lock: str
    load_steps: str
    load_history: str
    partitions_ahead: str
    live_workers: str
    overdue: str
    live_runs: str
    consumer_positions: str
    steps_in: str
    open_letters: str
    unsent: str
    outbox_lag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs to list.

    Attributes:
        states: Only these; empty for all.
        since: Only runs that began this long ago or less.
        after: Only runs that began then or later.
        limit: At most so many, the youngest first.
    """

    states: Sequence[RunState] = ()
    saga: str | None = None
    key: str | None = None
    correlation: str | None = None
    since: timedelta | None = None
    after: datetime | None = None
    limit: int = 50


#: What PostgreSQL says where a migration is missing.
NOT_THERE = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedFunctionError,
)


@asynccontextmanager
async def reading(database_url: str) -> AsyncGenerator[Store]:
    """Connect, and read everything in the block from one snapshot.

    Args:
        database_url: PostgreSQL, as postgresql://….

    Raises:
        ConnectError: MP501 when the server cannot be reached.
        StateError: MP607 when the database has no Milepost schema, MP620 when it has an older one.
    """
    try:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            database_url, timeout=CONNECT_TIMEOUT, statement_cache_size=0
        )
    except (*CANNOT_CONNECT, ValueError) as error:
        raise cannot_reach(database_url, error) from error
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield Store(connection)
    except NOT_THERE as error:
        raise await _behind(connection, str(error)) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StateError(
            "MP608",
            f"the database refuses to be read: {error}. Connect as a member of the role milepost_runtime.",
        ) from error
    finally:
        await connection.close(timeout=5.0)


@asynccontextmanager
async def changing(database_url: str) -> AsyncGenerator[asyncpg.Connection[Any]]:
    """Connect for a change; the block makes its own transactions.

    Args:
        database_url: PostgreSQL, as postgresql://….

    Raises:
        ConnectError: MP501 when the server cannot be reached.
        StateError: MP607 when the database has no Milepost schema, MP620 when it has an older one,
            MP608 when it lets this user not.
    """
    try:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            database_url, timeout=CONNECT_TIMEOUT, statement_cache_size=0
        )
    except (*CANNOT_CONNECT, ValueError) as error:
        raise cannot_reach(database_url, error) from error
    try:
        yield connection
    except NOT_THERE as error:
        raise await _behind(connection, str(error)) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StateError(
            "MP608",
            f"the database refuses this: {error}. Connect as a member of the role milepost_runtime.",
        ) from error
    finally:
        await connection.close(timeout=5.0)


def no_schema(reason: str) -> StateError:
    """Make the error that says that the database has not been migrated."""
    return StateError("MP607", f"this database has no Milepost schema ({reason}). Run `milepost migrate`.")


async def _behind(connection: asyncpg.Connection[Any], reason: str) -> StateError:
    """Make the error for a database without Milepost's schema, or with that of an older version."""
    server = await connection.fetchrow(Sql.server)
    if server is None or not server["has_schema"]:
        return no_schema(reason)
    found = await connection.fetchval(Sql.schema_version)
    return StateError("MP620", f"the database has schema version {found} ({reason}). Run `milepost migrate`.")


class Store:
    """Queries on one open connection."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = self._connection = connection

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one of this room's queries."""
        return await self._connection.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: Any) -> asyncpg.Record:
        """Run one of this room's queries that answers with exactly one row."""
        rows: list[asyncpg.Record] = await self._connection.fetch(query, *arguments)
        (row,) = rows
        return row

    async def runs(self, wanted: Wanted) -> list[RunLine]:
        """List runs, the youngest first."""
        after = wanted.after
        if wanted.since is not None:
            after = (await self.fetchrow(Sql.now))[0] - wanted.since
        rows = await self.fetch(
            Sql.list_runs,
            [state.value for state in wanted.states],
            wanted.saga,
            wanted.key,
            wanted.correlation,
            after,
            wanted.limit,
        )
        return [
            RunLine(
                **{
                    **row,
                    "state": RunState(row["state"]),
                    "step_state": StepState(row["step_state"]) if row["step_state"] else None,
                }
            )
            for row in rows
        ]

    async def sagas(self) -> list[str]:
        """Name the sagas that have runs, at most 20."""
        return [row["saga"] for row in await self.fetch(Sql.sagas)]

    async def find(self, reference: ByKey | ByPrefix) -> UUID:
        """Return the id of the one run that a reference means.

        Raises:
            StateError: MP604 when there is none, or it is gone after its retention.
            UsageError: MP606 when there are several.
        """
        if isinstance(reference, ByPrefix):
            return await self._find_id(reference)
        rows = await self.fetch(Sql.find_key, reference.saga, reference.key)
        rows = rows or await self.fetch(Sql.find_key_of_tenants, reference.saga, reference.key)
        name = f"{reference.saga}/{reference.key}"
        if not rows:
            raise StateError(
                "MP604", f"{name}: there is no such run. `milepost runs list` shows those there are."
            )
        if len(rows) > 1:
            found = ", ".join(f"{row['run_id']} (tenant {row['tenant']})" for row in rows)
            raise UsageError(
                "MP606", f"{name}: several tenants have such a run. Say which by its id: {found}."
            )
        (row,) = rows
        if not row["kept"]:
            raise StateError(
                "MP604",
                f"{name}: this run ended as {row['outcome'] or 'unknown'}; its details are no longer kept.",
            )
        found_id: UUID = row["run_id"]
        return found_id

    async def _find_id(self, reference: ByPrefix) -> UUID:
        rows = await self.fetch(Sql.find_ids, reference.low, reference.high)
        if not rows:
            raise StateError(
                "MP604",
                "there is no run whose id begins like this. `milepost runs list` shows those there are.",
            )
        if len(rows) > 1:
            found = ", ".join(f"{row['id']} ({row['saga']}/{row['key']})" for row in rows)
            more = " and maybe more" if len(rows) == 10 else ""
            raise UsageError(
                "MP606", f"several runs' ids begin like this: {found}{more}. Give more characters."
            )
        found_id: UUID = rows[0]["id"]
        return found_id

    async def run(self, run_id: UUID, *, history: bool) -> RunDetail:
        """Read a run with its steps, and its history when asked.

        Raises:
            StateError: MP604 when it is gone.
        """
        rows = await self.fetch(Sql.load_run, run_id)
        if not rows:
            raise StateError("MP604", f"run {run_id} is gone.")
        locks = await self.fetch(Sql.load_lock, run_id)
        steps = await self.fetch(Sql.load_steps, run_id)
        entries = await self.fetch(Sql.load_history, run_id) if history else []
        return RunDetail(
            **{**rows[0], "state": RunState(rows[0]["state"])},
            lock=LockLine(*locks[0]) if locks else None,
            steps=[_step_line(row) for row in steps],
            history=[HistoryLine(**{**row, "data": json.loads(row["data"])}) for row in entries],
        )

    async def lag(self) -> Lag:
        """Measure how far the relay is behind."""
        row = await self.fetchrow(Sql.outbox_lag)
        return Lag(row["amount"], row["oldest"], row["epoch"], row["leased"])

    async def ages(self) -> tuple[Age, ...]:
        """See how old everything is that waits.

        Its bounds of time and plan hold for what is read after it in the same block too.
        """
        return (await look(self._connection)).ages

    async def unsent(self) -> list[Unsent]:
        """Count the committed events that the relay has put aside, by topic and reason."""
        return [Unsent(**row) for row in await self.fetch(Sql.unsent)]


def _step_line(row: asyncpg.Record) -> StepLine:
    items = None if row["items"] is None else json.loads(row["items"])
    return StepLine(
        **{**row, "kind": StepKind(row["kind"]), "state": StepState(row["state"]), "items": items}
    )
