"""Publishing: events become outbox rows in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import UsageError
from ..schemas.events import Publishable, is_publishable, spec_of
from ..schemas.ids import Clock, Ids, SystemClock, SystemIds
from ..schemas.settings import max_event_bytes
from ..schemas.transaction import AnyTx, SyncTx, Transaction
from ..streams.drivers import Run, on_asyncpg, run_in, run_sync_in
from ..streams.tracing import handing_on
from .model import OutboxRow, event_row
from .statements import insert, insert_sync

_CLOCK = SystemClock()
_IDS = SystemIds()


async def publish(
    tx: AnyTx,
    *events: Publishable,
    topic: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    lock_key: bool = False,
    tenant: str = "",
) -> list[UUID]:
    """Write events to the outbox in the caller's transaction; they leave when it commits, or not at all.

    Publish as late in the transaction as you can, above all with `lock_key`.

    Args:
        tx: The open transaction: an asyncpg connection, AsyncSession, AsyncConnection (of engines made with
            postgresql+asyncpg or postgresql+psycopg), psycopg.AsyncConnection, or a handler's Transaction.
        events: Events, and tombstones.
        topic: Other topic than the class declares.
        key: Other record key than the class declares.
        headers: Kafka headers beside Milepost's own; text only.
        lock_key: Take the keys' locks until the transaction ends, so that events of one key reach the topic
            in the order in which their transactions commit. Without it two transactions that publish the same
            key at once are ordered as the relay sees them.
        tenant: Tenant of the events; '' takes that of the event being handled or of the step's run, if any.

    Returns:
        The events' ids, in the order given.

    Raises:
        UsageError: MP301 no open transaction, MP306 the handler has ended, MP307 lock_key above READ
            COMMITTED, MP308 unknown driver, MP349 a transaction for publish_sync, MP310 to MP319 and MP346 what is
            refused about an event.
        StateError: MP410 when the outbox has no partition for today.
    """
    run = await run_in(tx, "publish()")
    around = _Around(topic, key, headers, tenant)
    cause = tx._cause if isinstance(tx, Transaction) else None
    if cause:
        around.tenant = tenant or cause.tenant
        around.correlation_id = cause.correlation_id or None
        around.causation_id = cause.causation_id or None
    return await _publish(run, events, around, lock_key)


def publish_sync(
    tx: SyncTx,
    *events: Publishable,
    topic: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    lock_key: bool = False,
    tenant: str = "",
) -> list[UUID]:
    """Write events to the outbox in the caller's transaction, from code that does not await; see `publish`.

    Args:
        tx: The open transaction: a SQLAlchemy Session or Connection of an engine made with postgresql+psycopg, or a
            psycopg.Connection (psycopg 3).
        events: Events, and tombstones.
        topic: Other topic than the class declares.
        key: Other record key than the class declares.
        headers: Kafka headers beside Milepost's own; text only.
        lock_key: Take the keys' locks until the transaction ends.
        tenant: Tenant of the events.

    Returns:
        The events' ids, in the order given.

    Raises:
        UsageError: MP301 no open transaction, MP307 lock_key above READ COMMITTED, MP308 unknown driver, MP349 a
            transaction for publish, MP310 to MP319 and MP346 what is refused about an event.
        StateError: MP410 when the outbox has no partition for today.
    """
    run = run_sync_in(tx, "publish_sync()")
    if not events:
        return []
    with handing_on(lambda: _span_name(events), kind="producer") as trace:
        rows = _rows("publish_sync()", events, _Around(topic, key, headers, tenant), trace)
        insert_sync(rows, run, lock_key=lock_key, call="publish_sync()")
    return [row.id for row in rows]


async def publish_events(
    connection: asyncpg.Connection[Any],
    events: Sequence[Publishable],
    *,
    ids: Ids = _IDS,
    clock: Clock = _CLOCK,
    topic: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    lock_key: bool = False,
    tenant: str = "",
    correlation_id: str | None = None,
    causation_id: str | None = None,
    max_bytes: int | None = None,
) -> list[UUID]:
    """Do what `publish` does on a driver connection that is known to have an open transaction.

    Args:
        correlation_id: Business id shared by all events of one matter.
        causation_id: CloudEvents id of the event that caused these.
        max_bytes: Largest body in bytes; None takes MILEPOST_MAX_EVENT_BYTES.

    Raises:
        UsageError, StateError: As `publish`.
    """
    around = _Around(topic, key, headers, tenant, correlation_id, causation_id, ids, clock, max_bytes)
    return await _publish(on_asyncpg(connection), events, around, lock_key)


async def publish_rows(connection: asyncpg.Connection[Any], rows: Sequence[OutboxRow]) -> None:
    """Insert rows, all or none, in one statement.

    Args:
        connection: Driver connection with an open transaction.

    Raises:
        UsageError: MP312 over the topic's limit, MP313 unknown topic, MP314 key missing on a compacted topic;
            the transaction is then unharmed.
        StateError: MP410 when the outbox has no partition for today.
    """
    await insert(rows, on_asyncpg(connection))


@dataclass(slots=True)
class _Around:
    """What is said about all events of a call."""

    topic: str | None
    key: str | None
    headers: Mapping[str, str] | None
    tenant: str
    correlation_id: str | None = None
    causation_id: str | None = None
    ids: Ids = _IDS
    clock: Clock = _CLOCK
    max_bytes: int | None = None


async def _publish(run: Run, events: Sequence[Publishable], around: _Around, lock_key: bool) -> list[UUID]:
    if not events:
        return []
    with handing_on(lambda: _span_name(events), kind="producer") as trace:
        rows = _rows("publish()", events, around, trace)
        await insert(rows, run, lock_key=lock_key)
    return [row.id for row in rows]


def _rows(
    call: str, events: Sequence[Publishable], around: _Around, traceparent: str | None
) -> list[OutboxRow]:
    for event in events:
        if not is_publishable(event):
            raise UsageError(
                "MP318",
                f"{call}: {type(event).__name__} is no Event. Declare it as class {type(event).__name__}(Event, "
                'type="…", topic="…", key="…").',
            )
    limit = max_event_bytes() if around.max_bytes is None else around.max_bytes
    return [
        event_row(
            event,
            ids=around.ids,
            clock=around.clock,
            tenant=around.tenant,
            topic=around.topic,
            key=around.key,
            headers=around.headers,
            correlation_id=around.correlation_id,
            causation_id=around.causation_id,
            traceparent=traceparent,
            max_bytes=limit,
        )
        for event in events
    ]


def _span_name(events: Sequence[Publishable]) -> str:
    types = sorted({spec_of(event).type for event in events if is_publishable(event)})
    return f"publish {types[0] if len(types) == 1 else f'{len(events)} events'}"
