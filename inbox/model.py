"""What to do with a batch of records; pure.

A record is handled, parked as a dead letter, or passed by. Its identity and fingerprint decide whether it was there
before: same identity and fingerprint is a duplicate, same identity and another fingerprint is a reused id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypeAlias
from uuid import UUID

from ..schemas.envelope import Envelope, NotAnEvent, Record, read_event
from ..schemas.events import Event
from ..schemas.ids import event_identity
from ..schemas.options import Retry

Bound: TypeAlias = tuple[type[Event], Callable[[Any, Any], Awaitable[None]]]
Find: TypeAlias = Callable[[str], Bound | None]

_MESSAGE = 2_000


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
            HANDLER_FAILED or PROCESS_DIED.
        recoverable: Whether it may be handled later without another record being sent.
    """

    stage: Literal["DECODE", "HANDLE"]
    code: str
    message: str
    recoverable: bool
    attempts: int = 0
    first_at: datetime | None = None


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


def fingerprint(type: str, data: bytes) -> bytes:
    """Return sha256 of an event's type and its data as canonical JSON; the order of keys makes no difference.

    Numbers are compared as written, digit by digit, since a float would make unequal amounts equal. Data that is no
    JSON is taken as it is.
    """
    try:
        canonical = _ENCODER.encode(_DECODER.decode(data.decode())).encode()
    except (ValueError, RecursionError):
        canonical = data
    return hashlib.sha256(type.encode(errors="surrogatepass") + b"\n" + canonical).digest()


def _written(number: str) -> list[str]:
    # A list of one text cannot come from another JSON value that reads the same but ["#", …] written out.
    return ["#", number]


_DECODER = json.JSONDecoder(parse_float=_written, parse_int=_written, parse_constant=_written)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def read(record: Record, find: Find, *, unknown: Literal["skip", "dead_letter"], oldest_ms: float) -> Item:
    """Read a record and say what it calls for.

    Args:
        find: Returns event class and handler of a type.
        unknown: What an event type without a handler calls for.
        oldest_ms: Events sent before this are TOO_OLD: the inbox may have forgotten them. In milliseconds since
            1970 (UTC).
    """
    try:
        envelope, data = read_event(record)
    except NotAnEvent as error:
        return _poison(record, error.code, str(error))
    bound = find(envelope.type)
    if bound is None and unknown == "skip":
        return Item(record, envelope.id, b"", envelope.tenant, envelope)
    item = Item(record, envelope.id, fingerprint(envelope.type, data), envelope.tenant, envelope)
    if bound is None:
        message = f"no handler takes the type {envelope.type}"
        item.reason = Reason("DECODE", "UNKNOWN_TYPE", message, recoverable=True)
    elif 0 <= record.timestamp_ms < oldest_ms:
        message = "it is older than the inbox's memory, so nobody may know whether it was applied"
        item.reason = Reason("DECODE", "TOO_OLD", message, recoverable=False)
    else:
        _validate(item, data, bound)
    return item


def _validate(item: Item, data: bytes, bound: Bound) -> None:
    kind, handler = bound
    try:
        item.event = kind.model_validate_json(data)
    except Exception as error:  # a user's validator may raise anything
        item.reason = Reason("DECODE", "INVALID_BODY", f"it is no {kind.__name__}: {error}", recoverable=True)
    else:
        item.handler = handler


def oldest_kept(now: datetime, keep: timedelta) -> float:
    """Return since when the inbox remembers what it applied, in milliseconds since 1970 (UTC)."""
    return (now - keep).timestamp() * 1000


def candidates(items: Iterable[Item]) -> list[Item]:
    """Return the items that need an inbox row: one per identity, sorted by it, so that no two batches deadlock."""
    first: dict[UUID, Item] = {}
    for item in items:
        if item.act is not Act.PASS:
            first.setdefault(item.id, item)
    return sorted(first.values(), key=lambda item: item.id.int)


def plan(items: Sequence[Item], inserted: Mapping[UUID, str], stored: Mapping[UUID, bytes]) -> Plan:
    """Sort a batch into new, repeated and reused.

    Args:
        items: In offset order.
        inserted: Identities whose inbox row is new, each with the transaction that inserted it.
        stored: Fingerprints of those whose row was there.

    Raises:
        LookupError: An identity is in neither; its row was removed meanwhile, so that the batch is to be tried again.
    """
    found = Plan(marks=inserted)
    seen = dict(stored)
    for item in items:
        if item.act is Act.PASS:
            continue
        known = seen.get(item.id)
        if known is None:
            if item.id not in inserted:
                raise LookupError(f"the inbox row of {item.id} vanished")
            seen[item.id] = item.fingerprint
            if item.reason is None:
                found.handle.append(item)
            else:
                found.park.append((item, item.reason))
        elif known == item.fingerprint:
            found.duplicates += 1
        else:
            found.park.append((item, REUSED))
    return found


def split(items: Sequence[Item], failed: Item | None) -> list[tuple[bool, Sequence[Item]]]:
    """Return the pieces to try after a handler failed in a batch, each with whether it goes one by one.

    Args:
        failed: The item whose handler raised; None when only the commit told.
    """
    if failed is None:
        return [(True, items)]
    at = next(n for n, item in enumerate(items) if item is failed)
    pieces = [(False, items[:at]), (True, items[at : at + 1]), (False, items[at + 1 :])]
    return [piece for piece in pieces if piece[1]]


def suspected(items: Sequence[Item], suspect: int) -> list[tuple[bool, Sequence[Item]]]:
    """Return the pieces of a batch: one by one up to and including the offset `suspect`, then together."""
    several = [item.record.offset <= suspect for item in items]
    n = sum(several)
    return [piece for piece in ((True, items[:n]), (False, items[n:])) if piece[1]]


def may_retry(retry: Retry, attempts: int, first_at: datetime, now: datetime) -> bool:
    """Tell whether an event that failed `attempts` times may be tried again."""
    return attempts < retry.attempts and (retry.within is None or now - first_at < retry.within)


def delay(retry: Retry, attempts: int, dice: float) -> float:
    """Return the seconds to wait after the failure number `attempts`, with full jitter.

    Args:
        dice: Uniform in [0, 1).

    Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    bound = min(
        retry.cap.total_seconds(), retry.first.total_seconds() * retry.factor ** min(attempts - 1, 60)
    )
    return bound * dice


def letter_id(scope: str, record: Record) -> UUID:
    """Return the id of a record's dead letter, the same each time, so that a redelivered record has one."""
    where = f"{record.partition}:{record.offset}:{record.timestamp_ms}"
    return event_identity("", f"letter:{scope}:{record.topic}", where)


def sent_at(record: Record) -> datetime | None:
    """Return the record's timestamp, if it has one that a calendar can hold."""
    if record.timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def for_people(text: str) -> str:
    """Return a message shortened, and without what PostgreSQL text cannot hold."""
    return text[:_MESSAGE].replace("\x00", "\ufffd").encode(errors="replace").decode()


def _poison(record: Record, code: str, message: str) -> Item:
    return Item(
        record,
        event_identity("", f"kafka:{record.topic}", f"{record.partition}:{record.offset}"),
        hashlib.sha256(record.value or b"").digest(),
        reason=Reason("DECODE", code, message, recoverable=False),
    )
