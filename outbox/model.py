"""What an outbox row is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol, TypeAlias, get_args
from uuid import UUID

from pydantic_core import to_json

from ..schemas.codecs import CodecContext, Coded
from ..schemas.envelope import TOMBSTONE, event_headers
from ..schemas.events import Event, Publishable, Tombstone, is_topic, key_of, spec_of
from ..schemas.ids import Clock, Ids
from ..schemas.settings import MAX_EVENT_BYTES
from .refusals import body_of, check_around, check_headers, check_texts, check_values, no_topic, too_large

#: Id, tenant, topic, aggregatetype, aggregateid, type, payload, and headers as JSON text.
Values: TypeAlias = tuple[UUID, str, str, str, str | None, str, bytes | None, str]
_VALUES = get_args(Values)
_NO_HEADERS: dict[str, str] = {}
_TOMBSTONE = Coded(b"", "", {TOMBSTONE: "true"})


class Message(Protocol):
    """An internal message of schemas/messages.py."""

    @property
    def message_type(self) -> str:
        """CloudEvents type."""
        ...

    def model_dump_json(self) -> str:
        """Return its body."""
        ...


@dataclass(slots=True)
class OutboxRow:
    """One row of milepost.outbox, without what the database fills in; not frozen, for the time that takes, and not
    changed.

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


def values(row: OutboxRow) -> Values:
    """Turn a row into the values that are inserted."""
    return (
        row.id,
        row.tenant,
        row.topic,
        row.aggregatetype,
        row.aggregateid,
        row.type,
        row.payload,
        to_json(row.headers).decode(),
    )


def columns(rows: Sequence[OutboxRow]) -> list[list[object]]:
    """Turn rows into the arrays that the insert unnests, empty ones for none."""
    found = [*map(values, rows)]
    return [[row[n] for row in found] for n in range(len(_VALUES))]


def event_row(
    event: Publishable,
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
    """Make the row of one event or tombstone.

    Args:
        topic: Other topic than the class declares.
        key: Other record key than the class declares, or than the tombstone's.
        headers: Headers beside Milepost's own.
        max_bytes: Largest body in bytes.

    Raises:
        UsageError: MP310 naive datetime, MP311 NUL or lone surrogate, MP312 too large, MP313 no name of a topic, MP315
            header not text, MP316 reserved header name, MP317 body cannot be written as JSON, MP346 encryption keys
            missing or wrong.
    """
    spec, is_tombstone = spec_of(event), isinstance(event, Tombstone)
    if not is_tombstone:
        check_values(spec.type, event)
    record_key = _key_of(event) if key is None else key
    own = dict(headers) if headers else _NO_HEADERS
    if own:
        check_headers(spec.type, own)
    check_texts(spec.type, (("key", record_key), ("tenant", tenant), ("topic", topic)))
    check_around(spec.type, record_key, own, max_bytes)
    event_id = ids.new()
    id_text = str(event_id)
    coded = _TOMBSTONE if isinstance(event, Tombstone) else _coded(event, id_text, tenant, max_bytes)
    ours = event_headers(
        event_id=id_text,
        source=spec.type.rpartition(".")[0] or spec.type,
        type=spec.type,
        version=spec.version,
        time=clock.now(),
        tenant=tenant,
        correlation_id=correlation_id,
        causation_id=causation_id,
        traceparent=traceparent,
        tracestate=tracestate,
        content_type=coded.content_type,
    )
    name = topic or spec.topic
    if name != spec.topic and not is_topic(name):
        raise no_topic(spec.type, name)
    if own or coded.headers:
        ours = own | dict(coded.headers) | ours
    body = None if is_tombstone else coded.data
    return OutboxRow(event_id, tenant, name, name, record_key, spec.type, body, ours)


def _key_of(event: Publishable) -> str | None:
    return event.key if isinstance(event, Tombstone) else key_of(event)


def _coded(event: Event, event_id: str, tenant: str, max_bytes: int) -> Coded:
    spec, body = event.milepost_spec, body_of(event)
    coded = spec.codec.encode(body, CodecContext(spec.type, event_id, spec.version, tenant))
    if len(coded.data) > max_bytes:
        raise too_large(spec.type, len(coded.data), max_bytes)
    return coded


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

    That order keeps two of them from deadlocking. A number is the first 64 bits of SHA-256 over namespace, topic and
    key, as a signed integer; milepost.publish() in the database takes the same.
    """
    names = {(row.topic, row.aggregateid) for row in rows if row.aggregateid is not None}
    return sorted(
        int.from_bytes(sha256(f"milepost.key:{len(topic)}:{topic}:{key}".encode()).digest()[:8], signed=True)
        for topic, key in names
    )
