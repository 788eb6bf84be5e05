"""What an outbox row is made of, and which events are refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from ..schemas.envelope import event_headers
from ..schemas.errors import UsageError
from ..schemas.events import Event, key_of
from ..schemas.ids import Clock, Ids

#: Kafka's default limit of a record batch is 1,048,588 bytes; the rest is for key, headers and framing.
MAX_EVENT_BYTES = 1_000_000
#: Header names that Milepost writes itself.
RESERVED_HEADERS = frozenset({"content-type", "traceparent", "tracestate"})

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
    body = _body(event)
    record_key = key_of(event) if key is None else key
    own = dict(headers or {})
    _check_headers(spec.type, own)
    _check_texts(spec.type, {"key": record_key, "tenant": tenant, "topic": topic})
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
    """Return the advisory lock numbers of the rows' keys, each once and sorted, so that two publishers cannot deadlock.

    A number is the first 64 bits of BLAKE2b over namespace, topic and key, as a signed integer.
    """
    names = {(row.topic, row.aggregateid) for row in rows if row.aggregateid is not None}
    return sorted(
        int.from_bytes(
            blake2b(f"milepost.key:{len(topic)}:{topic}:{key}".encode(), digest_size=8).digest(), signed=True
        )
        for topic, key in names
    )


def check_values(where: str, value: object) -> None:
    """Refuse what would not come back as it was: naive datetimes, NUL and lone surrogates, anywhere in the value.

    Args:
        where: Name for the error, such as the event's type.

    Raises:
        UsageError: MP310 or MP311, naming the field.
    """
    for path, leaf in _leaves("", value):
        if isinstance(leaf, datetime):
            if leaf.utcoffset() is None:
                raise UsageError(
                    "MP310",
                    f"publish(): {where}, field {path} is a datetime without a time zone, so readers would disagree "
                    "about the instant. Use datetime.now(UTC), or declare the field as pydantic.AwareDatetime.",
                )
        elif isinstance(leaf, str):
            _check_text(where, f"field {path}", leaf)


def too_large(where: str, size: int, limit: int) -> UsageError:
    """Make the error for a body over a limit, both in bytes."""
    return UsageError(
        "MP312",
        f"publish(): {where} is {size} bytes, the limit is {limit}. Publish a reference to the data instead, or raise "
        "the limit of the topic and of MILEPOST_MAX_EVENT_BYTES.",
    )


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, str | datetime):
        yield path or "its value", value
        return
    for name, inner in _inside(value):
        if isinstance(name, str):
            yield f"{path}.{name} (as a name)".lstrip("."), name
        yield from _leaves(f"{path}.{name}".lstrip("."), inner)


def _inside(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in fields(value))
    return ()


def _body(event: Event) -> bytes:
    try:
        return event.model_dump_json().encode()
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise UsageError(
            "MP317",
            f"publish(): {event.milepost_spec.type} cannot be written as JSON: {error}. Use fields that pydantic can "
            "serialise, or give the field a serialiser.",
        ) from error


def _check_headers(where: str, headers: Mapping[Any, Any]) -> None:
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise UsageError(
                "MP315",
                f"publish(): {where}, header {name!r} is {type(value).__name__}, and headers are text so that every "
                "Kafka client reads them. Pass str.",
            )
        if name.lower().startswith("ce_") or name.lower() in RESERVED_HEADERS or not name:
            raise UsageError(
                "MP316",
                f"publish(): {where}, header {name!r} is written by Milepost itself. Use another name; correlation, "
                "causation and trace travel on their own.",
            )
        _check_text(where, f"header {name!r}", name)
        _check_text(where, f"header {name!r}", value)


def _check_texts(where: str, texts: Mapping[str, str | None]) -> None:
    for name, text in texts.items():
        if text is not None:
            _check_text(where, name, text)


def _check_text(where: str, what: str, text: str) -> None:
    if "\0" in text:
        found = "a NUL character, which PostgreSQL cannot store"
    elif not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        found = "a lone surrogate, which is no text in UTF-8"
    else:
        return
    raise UsageError(
        "MP311", f"publish(): {where}, {what} holds {found}. Clean the text before it is published."
    )
