"""What an outbox row is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, TypeAlias
from uuid import UUID

from ..schemas.envelope import event_headers
from ..schemas.events import Event, key_of
from ..schemas.ids import Clock, Ids
from ..schemas.settings import MAX_EVENT_BYTES
from .refusals import body_of, check_headers, check_texts, check_values, too_large

Columns: TypeAlias = tuple[
    list[UUID],
    list[str],
    list[str],
    list[str],
    list[str | None],
    list[str],
    list[bytes | None],
    list[str],
]


class Message(Protocol):
    """An internal message of schemas/messages.py."""

    @property
    def message_type(self) -> str:
        """CloudEvents type."""
        ...

    def model_dump_json(self) -> str:
        """Return its body."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row of milepost.outbox, without what the database fills in.

    Attributes:
        id: CloudEvents id, UUID version 7.
        aggregatetype: Debezium's routing column; the topic here.
        aggregateid: Record key, None for none.
        payload: Record value; None is a tombstone.
        headers: All record headers, text only.
    """

    id: UUID
    tenant: str
    topic: str
    aggregatetype: str
    aggregateid: str | None
    type: str
    payload: bytes | None
    headers: dict[str, str]


def columns(rows: Sequence[OutboxRow]) -> Columns:
    """Turn rows into the arrays that the insert unnests."""
    return (
        [row.id for row in rows],
        [row.tenant for row in rows],
        [row.topic for row in rows],
        [row.aggregatetype for row in rows],
        [row.aggregateid for row in rows],
        [row.type for row in rows],
        [row.payload for row in rows],
        [json.dumps(row.headers, ensure_ascii=False) for row in rows],
    )


def event_row(
    event: Event,
    *,
    ids: Ids,
    clock: Clock,
    tenant: str = "",
    topic: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
    traceparent: str | None = None,
    tracestate: str | None = None,
    max_bytes: int = MAX_EVENT_BYTES,
) -> OutboxRow:
    """Make the row of one event.

    Args:
        topic: Other topic than the class declares.
        key: Other record key than the class declares.
        headers: Headers beside Milepost's own.
        max_bytes: Largest body in bytes.

    Raises:
        UsageError: MP310 naive datetime, MP311 NUL or lone surrogate, MP312 too large, MP315 header not text,
            MP316 reserved header name, MP317 body cannot be written as JSON.
    """
    spec = event.milepost_spec
    check_values(spec.type, event)
    body = body_of(event)
    record_key = key_of(event) if key is None else key
    own = dict(headers or {})
    check_headers(spec.type, own)
    check_texts(spec.type, {"key": record_key, "tenant": tenant, "topic": topic})
    if len(body) > max_bytes:
        raise too_large(spec.type, len(body), max_bytes)
    event_id = ids.new()
    ours = event_headers(
        event_id=event_id,
        source=spec.type.rpartition(".")[0] or spec.type,
        type=spec.type,
        version=spec.version,
        time=clock.now(),
        tenant=tenant,
        correlation_id=correlation_id,
        causation_id=causation_id,
        traceparent=traceparent,
        tracestate=tracestate,
    )
    name = topic or spec.topic
    return OutboxRow(event_id, tenant, name, name, record_key, spec.type, body, own | ours)


def message_row(
    message: Message,
    *,
    topic: str,
    key: str,
    ids: Ids,
    clock: Clock,
    tenant: str,
    service: str,
    correlation_id: str | None,
    traceparent: str | None,
) -> OutboxRow:
    """Make the row of one of a service's own messages; the service is its CloudEvents source."""
    event_id = ids.new()
    headers = event_headers(
        event_id=event_id,
        source=service,
        type=message.message_type,
        version=1,
        time=clock.now(),
        tenant=tenant,
        correlation_id=correlation_id,
        traceparent=traceparent,
    )
    body = message.model_dump_json().encode()
    return OutboxRow(event_id, tenant, topic, topic, key, message.message_type, body, headers)


def lock_numbers(rows: Iterable[OutboxRow]) -> list[int]:
    """Return the advisory lock numbers of the rows' keys, each once, in an order common to all publishers.

    That order keeps two of them from deadlocking. A number is the first 64 bits of BLAKE2b
    over namespace, topic and key, as a signed integer.
    """
    names = {(row.topic, row.aggregateid) for row in rows if row.aggregateid is not None}
    return sorted(
        int.from_bytes(
            blake2b(f"milepost.key:{len(topic)}:{topic}:{key}".encode(), digest_size=8).digest(), signed=True
        )
        for topic, key in names
    )
