"""Publishing: events become outbox rows in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError, UsageError
from ..schemas.events import Event
from ..schemas.ids import Clock, Ids, SystemClock, SystemIds
from ..schemas.settings import max_event_bytes
from ..schemas.transaction import AnyTx, Transaction
from ..streams.database import raw_connection, require_read_committed
from ..streams.tracing import current_traceparent, span
from .model import OutboxRow, columns, event_row, lock_numbers
from .refusals import too_large
from .store import Sql

_CLOCK = SystemClock()
_IDS = SystemIds()


async def publish(
    tx: AnyTx,
    *events: Event,
    topic: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    lock_key: bool = False,
    tenant: str = "",
) -> list[UUID]:
    """Write events to the outbox in the caller's transaction; they leave when it commits, or not at all.

    Publish as late in the transaction as you can, above all with `lock_key`.

    Args:
        tx: The open transaction: an asyncpg connection, AsyncSession, AsyncConnection, or a handler's
            Transaction.
        topic: Other topic than the class declares.
        key: Other record key than the class declares.
        headers: Kafka headers beside Milepost's own; text only.
        lock_key: Take the keys' locks until the transaction ends, so that events of one key reach the topic
            in the order in which their transactions commit. Without it two transactions that publish the same
            key at once are ordered as the relay sees them.
        tenant: Tenant of the events; '' takes that of the event being handled, if any.

    Returns:
        The events' ids, in the order given.

    Raises:
        UsageError: MP301 no open transaction, MP306 the handler has ended, MP307 lock_key above READ
            COMMITTED, MP308 unknown driver, MP310 to MP317 what is refused about an event.
        StateError: MP410 when the outbox has no partition for today.
    """
    connection = await raw_connection(tx, "publish()")
    envelope = tx._envelope if isinstance(tx, Transaction) else None
    return await publish_events(
        connection,
        events,
        topic=topic,
        key=key,
        headers=headers,
        lock_key=lock_key,
        tenant=tenant or (envelope.tenant if envelope else ""),
        correlation_id=(envelope.correlation_id or envelope.event_id or None) if envelope else None,
        causation_id=(envelope.event_id or None) if envelope else None,
    )


async def publish_events(
    connection: asyncpg.Connection[Any],
    events: Sequence[Event],
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
    if not events:
        return []
    for event in events:
        if not isinstance(event, Event):
            raise UsageError(
                "MP318",
                f"publish(): {type(event).__name__} is no Event. Declare it as class {type(event).__name__}(Event, "
                'type="…", topic="…", key="…").',
            )
    limit = max_event_bytes() if max_bytes is None else max_bytes
    with span(_span_name(events), kind="producer"):
        rows = [
            event_row(
                event,
                ids=ids,
                clock=clock,
                tenant=tenant,
                topic=topic,
                key=key,
                headers=headers,
                correlation_id=correlation_id,
                causation_id=causation_id,
                traceparent=current_traceparent(),
                max_bytes=limit,
            )
            for event in events
        ]
        if lock_key:
            await require_read_committed(connection, "publish(lock_key=True)")
            await connection.execute(Sql.lock_keys, lock_numbers(rows))
        await publish_rows(connection, rows)
    return [row.id for row in rows]


async def publish_rows(connection: asyncpg.Connection[Any], rows: Sequence[OutboxRow]) -> None:
    """Insert rows, all or none, in one statement.

    Args:
        connection: Driver connection with an open transaction.

    Raises:
        UsageError: MP312 over the topic's limit, MP313 unknown topic, MP314 key missing on a compacted topic;
            the transaction is then unharmed.
        StateError: MP410 when the outbox has no partition for today.
    """
    if not rows:
        return
    try:
        refused = await connection.fetchrow(Sql.insert_rows, *columns(rows))
    except asyncpg.CheckViolationError as error:
        raise StateError(
            "MP410",
            "publish(): the outbox has no partition for today. Run `milepost migrate`, and `milepost serve` "
            "with the role upkeep, which makes them a week ahead.",
        ) from error
    if refused is not None:
        raise await _refusal(connection, refused)


async def _refusal(connection: asyncpg.Connection[Any], refused: asyncpg.Record) -> UsageError:
    where, topic = f"publish(): {refused['type']}", refused["topic"]
    if not refused["known"]:
        known = ", ".join(row["name"] for row in await connection.fetch(Sql.known_topics))
        return UsageError(
            "MP313", f"{where}: topic {topic!r} is unknown. Known: {known}. Create it, or correct the name."
        )
    if refused["keyless"]:
        return UsageError(
            "MP314",
            f"{where}: topic {topic!r} is compacted, and a record without a key cannot be kept there. "
            "Declare key= on the event, or pass key= to publish().",
        )
    return too_large(f"{refused['type']} for topic {topic!r}", refused["size"], refused["max_bytes"])


def _span_name(events: Sequence[Event]) -> str:
    types = sorted({event.milepost_spec.type for event in events})
    return f"publish {types[0] if len(types) == 1 else f'{len(events)} events'}"
