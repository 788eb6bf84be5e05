"""What a record of a topic means, held against what a consumer's inbox knows of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from ..schemas.envelope import Record
from . import model
from .model import Item


class ReplayOutcome(StrEnum):
    """What became of an event of a replayed slice."""

    APPLIED = "applied"
    """Its effect is in the database: the inbox has its id with the same content."""
    REPLAYED = "replayed"
    """It was missing, and this replay has applied it."""
    MISSING = "missing"
    """The consumer has read past it, and the inbox does not know it."""
    CONFLICTING = "conflicting"
    """The inbox has its id with other content."""
    PARKED = "parked"
    """It is a dead letter."""
    UNDECODABLE = "undecodable"
    """Its bytes are no event."""
    SKIPPED = "skipped"
    """The consumer takes no events of this type, or it is a tombstone."""
    FORGOTTEN = "forgotten"
    """It is older than what the inbox remembers, so nobody knows."""
    AHEAD = "ahead"
    """The consumer has not come so far yet; it will."""


@dataclass(frozen=True, slots=True)
class Known:
    """An inbox row.

    Attributes:
        outcome: APPLIED or PARKED.
        place: Topic, partition and offset of the record that made it.
        at: When it was made.
    """

    fingerprint: bytes
    outcome: Literal["APPLIED", "PARKED"]
    place: tuple[str, int, int]
    at: datetime


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between what a replay judges.

    Attributes:
        live: By partition, the offset up to which the consumer had read when the replay began.
        floor_ms: Since when the inbox remembers, in milliseconds since 1970 (UTC).
        began: When the replay began, if it applies; what was applied at the record's own place since then is its doing.
        takes: Whether the consumer takes events of a type; None when nobody knows.
    """

    live: Mapping[int, int]
    floor_ms: float
    began: datetime | None = None
    takes: Callable[[str], bool] | None = None


def identified(record: Record) -> Item:
    """Read a record as the consumer's intake does, for identity and fingerprint; its body is not looked into."""
    return model.read(record, _nobody, unknown="dead_letter", oldest_ms=0)


def _nobody(_: str) -> Any:
    return None


def outcome_of(item: Item, known: Known | None, bounds: Bounds) -> ReplayOutcome:
    """Say what became of an event.

    Args:
        known: The inbox row under its identity, if there is one.
    """
    if item.envelope is None:
        return ReplayOutcome.SKIPPED if item.reason is None else ReplayOutcome.UNDECODABLE
    if bounds.takes is not None and not bounds.takes(item.envelope.type):
        return ReplayOutcome.SKIPPED
    if known is not None:
        return _of_row(item, known, bounds.began)
    record = item.record
    if record.offset >= bounds.live.get(record.partition, 0):
        return ReplayOutcome.AHEAD
    # A record without a timestamp is as old as the floor at best.
    return ReplayOutcome.FORGOTTEN if record.timestamp_ms < bounds.floor_ms else ReplayOutcome.MISSING


def _of_row(item: Item, known: Known, began: datetime | None) -> ReplayOutcome:
    if known.fingerprint != item.fingerprint:
        return ReplayOutcome.CONFLICTING
    if known.outcome == "PARKED":
        return ReplayOutcome.PARKED
    record = item.record
    own = known.place == (record.topic, record.partition, record.offset)
    return (
        ReplayOutcome.REPLAYED if own and began is not None and known.at >= began else ReplayOutcome.APPLIED
    )


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event of a replayed slice, as a report tells it.

    Attributes:
        id: Its inbox identity.
        event_id: The CloudEvents id as sent; '' when it had none.
        type: CloudEvents type; '' when its bytes are no event.
        key: The record's key as text; None without one.
        outcome: What became of it.
        detail: Why it is undecodable; '' otherwise.
    """

    partition: int
    offset: int
    id: UUID
    event_id: str
    type: str
    key: str | None
    outcome: ReplayOutcome
    detail: str = ""


def told(item: Item, outcome: ReplayOutcome) -> ReplayedEvent:
    """Return what a report says of an event; of an undecodable one why it is that."""
    record, envelope = item.record, item.envelope
    why = "" if envelope is not None or item.reason is None else f"{item.reason.code}: {item.reason.message}"
    return ReplayedEvent(
        record.partition,
        record.offset,
        item.id,
        envelope.event_id if envelope else "",
        envelope.type if envelope else "",
        None if record.key is None else record.key.decode(errors="replace"),
        outcome,
        why[:500],
    )
