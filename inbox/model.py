"""What to do with a batch of records; pure.

A record is handled, parked as a dead letter, or passed by. Its identity and fingerprint decide whether it was there
before: same identity and fingerprint is a duplicate, same identity and another fingerprint is a reused id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypeAlias
from uuid import UUID

from ..schemas.codecs import CODEC_HEADER, Unreadable
from ..schemas.envelope import Envelope, NotAnEvent, Record, is_tombstone
from ..schemas.events import Event
from ..schemas.ids import place_identity
from ..schemas.reading import read_body_of
from ..schemas.structured import is_json
from ..schemas.usual import read_usual
from .fingerprint import fingerprint
from .letter import hold_name

Bound: TypeAlias = tuple[type[Event], Callable[[Any, Any], Awaitable[None]]]
Find: TypeAlias = Callable[[str], Bound | None]


class Act(Enum):
    """What a record calls for."""

    HANDLE = "handle"
    PARK = "park"
    PASS = "pass"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a record becomes a dead letter.

    Attributes:
        stage: DECODE before any handler saw it, HANDLE after.
        code: BAD_HEADER, BAD_JSON, NO_TYPE, NO_VALUE, INVALID_BODY, UNKNOWN_TYPE, TOO_OLD, EVENT_ID_REUSED,
            HANDLER_FAILED, PROCESS_DIED, KEY_HELD or INBOX_ROW_GONE.
        recoverable: Whether it may be handled later without another record being sent.
        error: Full name of the exception's class, '' without one.
        trace: Its traceback.
    """

    stage: Literal["DECODE", "HANDLE"]
    code: str
    message: str
    recoverable: bool
    attempts: int = 0
    first_at: datetime | None = None
    error: str = ""
    trace: str = ""

    @property
    def holds(self) -> bool:
        """Whether later events of the key have to wait, where a consumer keeps their order."""
        return self is not REUSED


@dataclass(slots=True, eq=False)
class Item:
    """A record, read; not frozen, because a frozen one takes three times as long to make, and not changed.

    Attributes:
        id: Inbox identity.
        fingerprint: sha256 over type and canonical data; over the raw value where there is no event.
        envelope: None when the record is no event.
        event: The validated body, when it is to be handled.
        reason: Why it is to be parked, if it is.
    """

    record: Record
    id: UUID
    fingerprint: bytes
    tenant: str = ""
    envelope: Envelope | None = None
    event: Event | None = None
    handler: Callable[[Any, Any], Awaitable[None]] | None = None
    reason: Reason | None = None

    @property
    def hold_name(self) -> bytes | None:
        """Name under which its key is held; None without a key."""
        return None if self.record.key is None else hold_name(self.record.key)

    @property
    def secret(self) -> bool:
        """Whether nothing of what it says may be stored readable."""
        return self.event is not None and self.event.milepost_spec.codec.secret

    @property
    def act(self) -> Act:
        """What the record calls for, if it was not there before."""
        if self.reason is not None:
            return Act.PARK
        return Act.PASS if self.handler is None else Act.HANDLE


@dataclass(slots=True)
class Plan:
    """What is new in a batch.

    Attributes:
        handle: Items to hand to their handlers, in offset order.
        park: Items to store as dead letters, with the reason.
        duplicates: Number of records that were there before.
        marks: Identities whose inbox row is new, each with the transaction that inserted it.
    """

    handle: list[Item] = field(default_factory=list)
    park: list[tuple[Item, Reason]] = field(default_factory=list)
    duplicates: int = 0
    marks: Mapping[UUID, str] = field(default_factory=dict)

    def events(self) -> list[tuple[Event, Envelope]]:
        """Return what is to be handled, in order."""
        return [
            (item.event, item.envelope)
            for item in self.handle
            if item.event is not None and item.envelope is not None
        ]

    @property
    def behind(self) -> list[UUID]:
        """Identities of those that wait only because of their key."""
        return [item.id for item, reason in self.park if reason is BEHIND]

    def unfinished(self, failed: Item | None) -> dict[UUID, str]:
        """Return the marks of all but those that were handled before `failed`."""
        done = set()
        for item in self.handle:
            if item is failed:
                break
            done.add(item.id)
        return {event_id: mark for event_id, mark in self.marks.items() if event_id not in done}


REUSED = Reason(
    "DECODE",
    "EVENT_ID_REUSED",
    "an earlier event has the same id and another body; the earlier one counts",
    recoverable=False,
)
BEHIND = Reason("HANDLE", "KEY_HELD", "it waits behind an earlier letter of its key", recoverable=True)


def read(
    record: Record,
    find: Find,
    unknown: Literal["skip", "dead_letter"],
    *,
    oldest_ms: float,
    done_below: int | None = None,
) -> Item:
    """Read a record and say what it calls for.

    Args:
        find: Returns event class and handler of a type.
        unknown: What an event type without a handler calls for.
        oldest_ms: Events sent before this are TOO_OLD: the inbox may have forgotten them. In milliseconds since
            1970 (UTC).
        done_below: On a topic that keeps its records for good, the offset below which all was read before. There an
            event before `oldest_ms` counts as applied, and one from this offset on is never too old.
    """
    if record.value is None and is_tombstone(record):
        return Item(record, _made_up(record), b"")
    try:
        envelope, data = read_usual(record)
    except NotAnEvent as error:
        return _poison(record, error.code, str(error))
    bound = find(envelope.type)
    if bound is None and unknown == "skip":
        return Item(record, envelope.id, b"", envelope.tenant, envelope)
    item = Item(record, envelope.id, fingerprint(envelope.type, data), envelope.tenant, envelope)
    old = 0 <= record.timestamp_ms < oldest_ms
    if bound is None:
        message = f"no handler takes the type {envelope.type}"
        item.reason = Reason("DECODE", "UNKNOWN_TYPE", message, recoverable=True)
    elif old and done_below is None:
        message = "it is older than the inbox's memory, so nobody may know whether it was applied"
        item.reason = Reason("DECODE", "TOO_OLD", message, recoverable=False)
    elif not old or done_below is None or record.offset >= done_below:
        _validate(item, data, bound)
    return item


def _validate(item: Item, data: bytes, bound: Bound) -> None:
    kind, handler = bound
    envelope = item.envelope
    assert envelope is not None
    if not is_json(envelope.content_type) and CODEC_HEADER not in envelope.extra:
        message = f"its content is {envelope.content_type[:100]}, and handlers take JSON"
        item.reason = Reason("DECODE", "UNSUPPORTED_CONTENT", message, recoverable=False)
        return
    try:
        item.event = read_body_of(kind, data, envelope)
    except Unreadable as error:
        item.reason = Reason("DECODE", error.code, str(error), recoverable=error.recoverable)
    else:
        item.handler = handler


def oldest_kept(now: datetime, keep: timedelta, purged_below: datetime | None = None) -> float:
    """Return since when the inbox remembers what it applied, in milliseconds since 1970 (UTC).

    Args:
        keep: How long, by the settings of this process.
        purged_below: Up to when rows have been removed, perhaps under other settings; None when none were.
    """
    since = now - keep
    return (since if purged_below is None else max(since, purged_below)).timestamp() * 1000


def candidates(items: Iterable[Item]) -> list[Item]:
    """Return the items that need an inbox row: one per identity, sorted by it, so that no two batches deadlock."""
    first: dict[UUID, Item] = {}
    for item in items:
        if item.handler is not None or item.reason is not None:
            first.setdefault(item.id, item)
    return [first[event_id] for event_id in sorted(first)]


def hold_names(items: Iterable[Item]) -> list[bytes]:
    """Return the names of the items' keys, sorted."""
    return sorted({name for item in items if (name := item.hold_name) is not None})


def plan(
    items: Sequence[Item],
    inserted: Mapping[UUID, str],
    stored: Mapping[UUID, bytes],
    held: Collection[bytes] | None = None,
) -> Plan:
    """Sort a batch into new, repeated, reused and waiting.

    Args:
        items: In offset order.
        inserted: Identities whose inbox row is new, each with the transaction that inserted it.
        stored: Fingerprints of those whose row was there.
        held: Names of keys that are held; None for a consumer that holds none.

    Raises:
        LookupError: An identity is in neither; its row was removed meanwhile, so that the batch is to be tried again.
    """
    found = Plan(marks=inserted)
    seen = dict(stored)
    holds = None if held is None else set(held)
    for item in items:
        reason = item.reason
        if item.handler is None and reason is None:
            continue
        known = seen.get(item.id)
        if known is None:
            if item.id not in inserted:
                raise LookupError(f"the inbox row of {item.id} vanished")
            seen[item.id] = item.fingerprint
            if holds is not None:
                reason = _held(item, holds)
            if reason is None:
                found.handle.append(item)
            else:
                found.park.append((item, reason))
        elif known == item.fingerprint:
            found.duplicates += 1
        else:
            found.park.append((item, REUSED))
    return found


def _held(item: Item, holds: set[bytes]) -> Reason | None:
    """Return why an item is parked, its key considered; if it is, its key is held from now on."""
    name = item.hold_name
    reason = item.reason or (BEHIND if name in holds else None)
    if reason is not None and name is not None:
        holds.add(name)
    return reason


def _made_up(record: Record) -> UUID:
    return place_identity(record.topic, record.partition, record.offset, record.timestamp_ms)


def _poison(record: Record, code: str, message: str) -> Item:
    return Item(
        record,
        _made_up(record),
        hashlib.sha256(record.value or b"").digest(),
        reason=Reason("DECODE", code, message, recoverable=False),
    )
