"""CloudEvents 1.0 over Kafka: the headers of a record, and what a handler sees of them.

Binary mode out; binary and structured mode in.
Source: CloudEvents Kafka protocol binding 1.0.2, https://github.com/cloudevents/spec
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from .exchange import BadExchange, Exchange, read_exchange
from .ids import LONGEST_ID, event_identity, place_identity
from .structured import BadStructure, read_structured
from .texts import unstorable, version_of

CONTENT_JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
STRUCTURED_PREFIX = "application/cloudevents"
#: One header that holds all of a record's headers as JSON: Debezium's outbox event router can carry a column
#: only into one header. See docs/debezium.md.
PACKED = "milepost-headers"

#: Header of a tombstone that was published as such.
TOMBSTONE = "milepost-tombstone"
#: What is read beside ce_* headers.
_PLAIN = frozenset({"content-type", "traceparent", "tracestate"})
_PREFIXES = ("ce_", "milepost-")
#: Attributes that are stored, or sent on with what the event causes.
_NAMES = ("type", "source", "id", "tenant", "correlationid", "causationid")


@dataclass(slots=True, unsafe_hash=True)
class Record:
    """A Kafka record as it was read: raw bytes, nothing decoded; not frozen, for the time that takes, and not changed.

    Attributes:
        timestamp_ms: Record timestamp in milliseconds since 1970 (UTC).
        headers: Names with raw values; a value may be None.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Envelope:
    """Everything about a received event except its body.

    Attributes:
        id: Inbox identity (see `event_identity`).
        event_id: The CloudEvents id as sent; '' when the record had none.
        time: When the event happened, if the sender said so.
        traceparent: W3C trace context of the sender, if valid text.
        delivery: How often this record is being handled, from 1.
        identified: False when the identity was made from topic, partition and offset.
        exchange: Of commands and replies, what their headers say; None without such a header.
        extra: Headers whose names begin with milepost-, lower case; codecs read them.
        content_type: Media type of the data as sent; '' where the sender said none, which means JSON.
    """

    id: UUID
    event_id: str
    source: str
    type: str
    version: int
    tenant: str
    time: datetime | None
    topic: str
    partition: int
    offset: int
    key: bytes | None
    correlation_id: str | None
    causation_id: str | None
    traceparent: str | None
    tracestate: str | None
    delivery: int = 1
    identified: bool = True
    exchange: Exchange | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""


class NotAnEvent(Exception):
    """The record's bytes are no event; `code` and the message say why. The record is to be parked.

    Args:
        code: NO_TYPE, BAD_HEADER, BAD_JSON, NO_VALUE or UNSUPPORTED_FORMAT.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def event_headers(
    *,
    event_id: UUID | str,
    source: str,
    type: str,
    version: int,
    time: datetime,
    tenant: str = "",
    correlation_id: str | None = None,
    causation_id: str | None = None,
    traceparent: str | None = None,
    tracestate: str | None = None,
    content_type: str = CONTENT_JSON,
) -> dict[str, str]:
    """Return the text headers of one outgoing event in CloudEvents binary mode.

    Args:
        time: Timezone-aware instant; written in RFC 3339 with its offset.
        content_type: Media type of the body; '' for none.
    """
    headers = {
        "ce_specversion": "1.0",
        "ce_id": str(event_id),
        "ce_source": source,
        "ce_type": type,
        "ce_time": time.isoformat(),
        "ce_eventversion": str(version),
    }
    if content_type:
        headers["content-type"] = content_type
    if tenant:
        headers["ce_tenant"] = tenant
    if correlation_id:
        headers["ce_correlationid"] = correlation_id
    if causation_id:
        headers["ce_causationid"] = causation_id
    if traceparent:
        headers["traceparent"] = traceparent
    if tracestate:
        headers["tracestate"] = tracestate
    return headers


def essence(content_type: str) -> str:
    """Return a media type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_tombstone(record: Record) -> bool:
    """Tell whether a record was published as a tombstone, so that nothing is missing in it."""
    return record.value is None and any(name.lower() == TOMBSTONE for name, _ in record.headers)


def read_event(record: Record) -> tuple[Envelope, bytes]:
    """Read a record as an event.

    Returns:
        The envelope and the bytes of the event's data.

    Raises:
        NotAnEvent: The record carries no type, a header is not UTF-8, its structured body is no JSON object, or
            what names it cannot be stored. Nothing else is raised, whatever the bytes are.
    """
    headers = _text_headers(record)
    content_type = essence(headers.get("content-type", ""))
    if content_type.startswith(STRUCTURED_PREFIX):
        if content_type != STRUCTURED:
            message = f"it is in the CloudEvents format {content_type}, and only {STRUCTURED} is read"
            raise NotAnEvent("UNSUPPORTED_FORMAT", message)
        attributes, data = _structured(record)
        content_type = attributes.get("datacontenttype", "")
        attributes = {
            name: text for name, text in attributes.items() if name not in {"traceparent", "tracestate"}
        } | {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    else:
        attributes = {name.removeprefix("ce_"): text for name, text in headers.items()}
        if record.value is None:
            raise NotAnEvent(
                "NO_VALUE", "the record has no value (a tombstone), and this consumer expects an event"
            )
        data = record.value
    extra = {name: text for name, text in headers.items() if name.startswith("milepost-")}
    return _envelope(record, attributes, extra, content_type), data


def _text_headers(record: Record) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in record.headers:
        lower = header_of(name)
        if not lower:
            continue
        if lower == PACKED:
            headers = _packed(value) | headers
            continue
        try:
            text = (value or b"").decode()
        except UnicodeDecodeError as error:
            if lower in {"traceparent", "tracestate"}:
                continue
            raise NotAnEvent("BAD_HEADER", f"header {name} is not UTF-8: {error}") from error
        if lower == "ce_id" and headers.get("ce_id", text) != text:
            raise NotAnEvent("BAD_HEADER", "the record has two different ce_id headers")
        headers[lower] = text
    return headers


@lru_cache(maxsize=1024)
def header_of(name: str) -> str:
    """Return the name in lower case of a header that is read; '' for others."""
    lower = name.lower()
    return lower if lower.startswith(_PREFIXES) or lower in _PLAIN else ""


def _packed(value: bytes | None) -> dict[str, str]:
    try:
        found: Any = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise NotAnEvent("BAD_HEADER", f"header {PACKED} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotAnEvent("BAD_HEADER", f"header {PACKED} is no JSON object")
    return {name.lower(): text for name, text in found.items() if isinstance(text, str) and header_of(name)}


def _structured(record: Record) -> tuple[dict[str, str], bytes]:
    try:
        return read_structured(record.value or b"")
    except BadStructure as error:
        raise NotAnEvent("BAD_JSON", str(error)) from error


def _require_storable(attributes: Mapping[str, str]) -> None:
    for name in _NAMES:
        if unstorable(attributes.get(name, "")):
            raise NotAnEvent("BAD_HEADER", f"its {name} holds U+0000 or a lone surrogate")


def _trace(attributes: Mapping[str, str], name: str) -> str | None:
    text = attributes.get(name)
    return None if text is None or unstorable(text) else text


def _exchange(extra: Mapping[str, str]) -> Exchange | None:
    try:
        return read_exchange(extra) if extra else None
    except BadExchange as error:
        raise NotAnEvent("BAD_HEADER", str(error)) from error


def _envelope(
    record: Record, attributes: Mapping[str, str], extra: Mapping[str, str], content_type: str
) -> Envelope:
    _require_storable(attributes)
    event_type = attributes.get("type", "")
    if not event_type:
        raise NotAnEvent("NO_TYPE", "the record has no ce_type header, so it is no CloudEvent")
    tenant = attributes.get("tenant", "")
    source = attributes.get("source", "")
    event_id = attributes.get("id", "")
    identified = bool(event_id.strip()) and len(event_id) <= LONGEST_ID
    identity = (
        event_identity(tenant, source, event_id)
        if identified
        else place_identity(record.topic, record.partition, record.offset, record.timestamp_ms)
    )
    return Envelope(
        id=identity,
        event_id=event_id,
        source=source,
        type=event_type,
        version=version_of(attributes.get("eventversion", "")),
        tenant=tenant,
        time=time_of(attributes.get("time")),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        correlation_id=attributes.get("correlationid"),
        causation_id=attributes.get("causationid"),
        traceparent=_trace(attributes, "traceparent"),
        tracestate=_trace(attributes, "tracestate"),
        identified=identified,
        exchange=_exchange(extra),
        extra=extra,
        content_type=content_type,
    )


def time_of(text: str | None) -> datetime | None:
    """Return the instant that an event's time names; None where it names none."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text.upper())  # RFC 3339 allows t and z
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None
