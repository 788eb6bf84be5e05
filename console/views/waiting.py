"""What waits: held keys, signals, resource locks with their lines, and queues with who serves them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ...inbox.letter import scope_of
from ...recovery.permissions import NOTHING, Scope
from ...schemas.errors import StateError
from ...streams.queries import Queries
from .letter_rows import InLine, owner, spoken
from .letters import in_line
from .model import View, tenants_of
from .payload import Payload, short, shown

SignalState = Literal["matched", "unmatched", "expired"]


class _Sql(Queries, file="waiting.sql"):
    holds: str
    signals: str
    signal: str
    signal_payload: str
    resources: str
    resource_line: str
    queues: str
    workers: str


class Hold(View):
    """A key, or a whole topic, of which nothing more is handled until its first letter is done.

    Attributes:
        consumer: Whose; relay for what is held on the way out.
        key: The record key; None where the whole topic is held.
        waiting: Letters of it that are not done, the first included.
        line: These letters in order, the beginning of them.
    """

    consumer: str
    topic: str
    key: str | None
    reason: str
    since: datetime
    waiting: int
    first: int | None
    first_code: str | None
    first_status: str | None
    line: list[InLine]


class Holds(View):
    """Held keys, the longest held first; `cut` says whether there are more."""

    holds: list[Hold]
    cut: bool
    now: datetime | None


async def holds(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    consumer: str | None = None,
    limit: int = 100,
    payloads: Scope = NOTHING,
) -> Holds:
    """Return held keys with the order of what waits behind each.

    Args:
        consumer: Only its; "relay" for those on the way out.
        payloads: Of what the reader may see what events say; the reason of a hold may quote them.
    """
    of = None if consumer is None else "relay" if consumer == "relay" else scope_of(consumer)
    rows = await connection.fetch(_Sql.holds, tenants_of(scope), of, limit + 1)
    found = [
        Hold(
            **{name: row[name] for name in ("topic", "since", "first", "first_code", "first_status")},
            consumer=owner(row["scope"]),
            key=None if row["scope"] == "relay:topic" else short(row["key"], readable=True),
            reason=_reason(
                row["reason"], relay=row["scope"].startswith("relay:"), readable=payloads == scope
            ),
            waiting=row["amount"],
            line=await in_line(connection, scope, row["scope"], row["topic"], row["key"]),
        )
        for row in rows[:limit]
    ]
    return Holds(holds=found, cut=len(rows) > limit, now=rows[0]["now"] if rows else None)


def _reason(text: str, *, relay: bool, readable: bool) -> str:
    """Return why a key is held; code and words stand there side by side."""
    code, _, words = text.partition(": ")
    return (
        f"{code}: {spoken(words, code, 'RELAY' if relay else 'HANDLE', readable=readable)}" if words else text
    )


class Signal(View):
    """An awaited event that came.

    Attributes:
        state: matched: a run has it; unmatched: none has waited for it yet; expired: none will get it any more.
        run: Saga and key of the run that has it.
    """

    id: UUID
    tenant: str
    type: str
    key: str
    source: str
    event_id: str
    state: SignalState
    received_at: datetime
    expires_at: datetime
    matched_at: datetime | None
    run_id: UUID | None
    run: str | None
    bytes: int


class Signals(View):
    """Signals, the youngest first; `next` is given as `before` for the next page."""

    signals: list[Signal]
    next: UUID | None
    now: datetime | None


async def signals(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    state: SignalState | None = None,
    type: str | None = None,
    key: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Signals:
    """Return a page of signals."""
    rows = await connection.fetch(_Sql.signals, *scope.parameters(), state, type, key, before, limit + 1)
    found = [_signal(row) for row in rows[:limit]]
    following = found[-1].id if len(rows) > limit else None
    return Signals(signals=found, next=following, now=rows[0]["now"] if rows else None)


async def signal(connection: asyncpg.Connection[Any], scope: Scope, signal_id: UUID) -> Signal:
    """Return one signal.

    Raises:
        StateError: MP776 when there is none that the reader may see.
    """
    row = await connection.fetchrow(_Sql.signal, *scope.parameters(), signal_id)
    if row is None:
        raise _no_signal(signal_id)
    return _signal(row)


def _no_signal(signal_id: UUID) -> StateError:
    return StateError("MP776", f"signal {signal_id}: there is none, or it has been removed.")


def _signal(row: Any) -> Signal:
    state: SignalState = "matched"
    if row["matched_at"] is None:
        state = "unmatched" if row["expires_at"] > row["now"] else "expired"
    made = {name: row[name] for name in Signal.model_fields if name not in {"state", "run"}}
    return Signal(**made, state=state, run=f"{row['saga']}/{row['run_key']}" if row["saga"] else None)


async def signal_payload(
    connection: asyncpg.Connection[Any], scope: Scope, signal_id: UUID, *, readable: bool
) -> Payload:
    """Return what a signal says.

    Raises:
        StateError: MP776 when there is none that the reader may see.
    """
    payload = await connection.fetchval(_Sql.signal_payload, *scope.parameters(), signal_id)
    if payload is None:
        raise _no_signal(signal_id)
    return shown(payload.encode(), readable=readable)


class Resource(View):
    """A lock that a run has.

    Attributes:
        run: Saga and key of who has it; None where the run is gone.
        waiting: How many wait for it, with the oldest of them.
    """

    tenant: str
    name: str
    run_id: UUID
    run: str | None
    run_state: str | None
    since: datetime
    waiting: int
    oldest: datetime | None


class Waiter(View):
    """A run that waits for a lock."""

    run_id: UUID
    run: str | None
    run_state: str | None
    since: datetime


class Queue(View):
    """A queue of work.

    Attributes:
        workers: Live processes that serve it.
        busy: Steps of it that are being done.
        due: Steps of it that nobody has begun, and how long the oldest of them has waited.
    """

    queue: str
    workers: int
    services: list[str]
    busy: int
    due: int
    oldest: timedelta | None


class Worker(View):
    """A process with a lease."""

    id: UUID
    service: str
    name: str
    roles: list[str]
    queues: list[str]
    started_at: datetime
    expires_at: datetime
    live: bool


class Resources(View):
    """Locks, queues and the processes that serve them.

    Attributes:
        whole: Whether queues and processes are told: they belong to no tenant and no workflow.
    """

    resources: list[Resource]
    cut: bool
    queues: list[Queue]
    workers: list[Worker]
    whole: bool
    now: datetime | None


async def resources(
    connection: asyncpg.Connection[Any], scope: Scope, *, name: str | None = None, limit: int = 100
) -> Resources:
    """Return locks, those that somebody waits for first; queues with who serves them to who may see all workflows."""
    rows = await connection.fetch(_Sql.resources, *scope.parameters(), name, limit + 1)
    whole = scope.parameters() == (None, None)
    queues = await connection.fetch(_Sql.queues) if whole else []
    workers = await connection.fetch(_Sql.workers) if whole else []
    return Resources(
        resources=[
            Resource(
                **{part: row[part] for part in ("tenant", "name", "run_id", "since", "waiting", "oldest")},
                run=_run(row),
                run_state=row["state"],
            )
            for row in rows[:limit]
        ],
        cut=len(rows) > limit,
        queues=[Queue(**row) for row in queues],
        workers=[Worker(**row, live=row["expires_at"] > row["now"]) for row in workers],
        whole=whole,
        now=rows[0]["now"] if rows else workers[0]["now"] if workers else None,
    )


async def resource_line(
    connection: asyncpg.Connection[Any], scope: Scope, tenant: str, name: str, *, limit: int = 100
) -> list[Waiter]:
    """Return who waits for a lock, in the order in which they get it."""
    rows = await connection.fetch(_Sql.resource_line, *scope.parameters(), tenant, name, limit)
    return [
        Waiter(run_id=row["run_id"], run=_run(row), run_state=row["state"], since=row["since"])
        for row in rows
    ]


def _run(row: Any) -> str | None:
    return f"{row['saga']}/{row['key']}" if row["saga"] else None
