"""Copies of dead letters on a topic, for tools that know Kafka Connect's dead letter queues.

A copy leaves through the outbox, in the transaction of its letter, with the record's own key, value and headers. The
context headers have the names and meanings of Kafka Connect's DeadLetterQueueReporter (KIP-298). The outbox holds text,
so what is no text travels as base64 and a header says so.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from ..inbox.consumer import Consumer
from ..inbox.letter import for_people, sent_at
from ..inbox.letters import Report
from ..inbox.model import Item, Reason
from ..outbox.model import OutboxRow
from ..outbox.publish import publish_rows
from ..schemas.packing import pack_headers
from ..schemas.texts import unstorable
from .signals import signal_consumer

if TYPE_CHECKING:
    from .app import Milepost

_CONNECT = "__connect.errors."
_OWN = "__milepost.errors."
#: Kafka Connect's stages, in capitals there: what reads bytes, and what puts a record where it belongs.
_STAGES = {"DECODE": "value_converter", "HANDLE": "task_put"}
#: Longest traceback that goes along, in characters.
_TRACE = 8_000


def dead_topic(service: Milepost, consumer: str) -> str:
    """Return the topic of a consumer's dead letters; '' when there is none."""
    pattern = service.settings.dead_letter_topic
    return pattern.replace("{service}", service.name).replace("{consumer}", consumer)


def dead_topics(service: Milepost) -> list[str]:
    """Return the topics that copies of dead letters go to, each once."""
    consumers: list[Consumer] = [*service.consumers.values(), signal_consumer(service)]
    found = {dead_topic(service, consumer.name) for consumer in consumers if consumer.topics}
    return sorted(found - {""})


def reporter(service: Milepost, consumer: str) -> Report | None:
    """Return what writes the copies of a consumer's letters; None when there is no topic for them."""
    topic = dead_topic(service, consumer)
    if not topic:
        return None
    most = service.settings.max_event_bytes

    async def report(
        connection: asyncpg.Connection[Any], name: str, parked: Sequence[tuple[UUID, Item, Reason]]
    ) -> None:
        rows = [copy_of(service.ids.new(), topic, name, one, max_bytes=most) for one in parked]
        await publish_rows(connection, rows)

    return report


def copy_of(
    event_id: UUID, topic: str, consumer: str, parked: tuple[UUID, Item, Reason], *, max_bytes: int
) -> OutboxRow:
    """Make the outbox row of a letter's copy.

    Args:
        event_id: The row's own id.
        topic: Where it goes.
        parked: The letter's id, what is parked, and why.
        max_bytes: Largest value and headers together; of a larger record the value stays behind, and a header says so.
    """
    letter, item, reason = parked
    record = item.record
    headers, lossless = _texts(record.headers)
    headers |= _context(consumer, letter, item, reason)
    if not lossless:
        headers[_OWN + "headers"] = pack_headers(record.headers).decode()
    key, encoded = _key(record.key)
    if encoded:
        headers[_OWN + "key.encoding"] = "base64"
    value = record.value
    size = sum(len(name) + len(text) for name, text in headers.items()) + len(key or "") + len(value or b"")
    if value and size > max_bytes:
        headers[_OWN + "value.omitted"] = f"{len(value)} bytes"
        value = None
    if value is None and key is None:
        # Kafka's clients refuse a record with neither.
        headers[_OWN + "value.null"] = "true"
        value = b""
    return OutboxRow(event_id, item.tenant, topic, topic, key, "milepost.dead-letter", value, headers)


def _context(consumer: str, letter: UUID, item: Item, reason: Reason) -> dict[str, str]:
    record, at = item.record, sent_at(item.record)
    handler: Any = item.handler
    place = f"{handler.__module__}.{handler.__qualname__}" if hasattr(handler, "__qualname__") else consumer
    found = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": consumer,
        "task.id": str(record.partition),
        "stage": _STAGES[reason.stage].upper(),
        "class.name": place,
        "exception.class.name": reason.error or reason.code,
        "exception.message": for_people(reason.message),
        "exception.stacktrace": _storable(reason.trace[-_TRACE:]),
    }
    own = {"code": reason.code, "letter": str(letter), "attempts": str(reason.attempts)}
    if at is not None:
        own["timestamp"] = at.isoformat()
    return {_CONNECT + name: text for name, text in found.items()} | {
        _OWN + name: text for name, text in own.items()
    }


def _texts(headers: Sequence[tuple[str, bytes | None]]) -> tuple[dict[str, str], bool]:
    """Return the headers that are texts under a name of their own, and whether these are all."""
    times = Counter(name for name, _ in headers)
    found = dict[str, str]()
    for name, value in headers:
        try:
            text = (value or b"").decode()
        except UnicodeDecodeError:
            continue
        ours = name.startswith((_CONNECT, _OWN))
        if value is not None and times[name] == 1 and not ours and not unstorable(name + text):
            found[name] = text
    return found, len(found) == len(headers)


def _key(key: bytes | None) -> tuple[str | None, bool]:
    if key is None:
        return None, False
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if unstorable(text):
        return base64.b64encode(key).decode(), True
    return text, False


def _storable(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()
