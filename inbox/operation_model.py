"""What to do when an operation is asked for: `decide(record, asked, now)`. Pure.

An operation is one intended effect, named by (tenant, kind, key). Its record says what became of it; the fingerprint of
the request says whether it is asked for with the same meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TypeAlias
from uuid import UUID

from ..schemas.options import Repeat

#: (tenant, kind, key)
Name: TypeAlias = tuple[str, str, str]

#: Kind of the records that IdempotencyMiddleware keeps.
HTTP = "http"


class OperationState(StrEnum):
    """State of a record: FAILED_FINAL is a definite no, UNKNOWN is neither success nor failure."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A record.

    Attributes:
        fence: Rises with every claim.
        wake_at: RUNNING: when its lease ends. UNKNOWN: since when it may be asked about.
        doubt_at: When the last try ended whose effect nobody knows; None when there is no such try, or when it is the
            running one.
        expires_at: When it may be forgotten; None while forgetting it could repeat an effect.
        result: JSON of what `do` returned.
        response_code: HTTP status of the answer that is kept; response_body None when it was too long to keep.
        code: Why it failed or is unknown.
    """

    id: UUID
    fingerprint: bytes
    state: OperationState
    fence: int = 1
    wake_at: datetime | None = None
    doubt_at: datetime | None = None
    expires_at: datetime | None = None
    result: str | None = None
    response_code: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response_body: bytes | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        fingerprint: Of the normalised request.
        repeat: What the caller declares now; a record of earlier code follows it too.
    """

    fingerprint: bytes
    repeat: Repeat


class Act(Enum):
    """What to do."""

    BEGIN = "begin"
    """Nothing is known, or the record has expired: claim it as new, and do it."""
    TRY = "try"
    """Claim it, and do it again: either nothing happened, or the other side dedupes."""
    ASK = "ask"
    """Claim it, and ask the probe."""
    ANSWER = "answer"
    """It was done: give the stored answer."""
    REFUSE = "refuse"
    """It was refused for good: say so again."""
    REUSED = "reused"
    """The key belongs to another request."""
    WAIT = "wait"
    """Somebody does it now."""
    LOST = "lost"
    """Whoever did it is gone, and nobody may ask or repeat: mark it UNKNOWN, and say so."""
    UNKNOWN = "unknown"
    """Nobody knows, and it is too early to ask, or nobody may."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An act, and what it needs.

    Attributes:
        doubt_at: ASK: since when nothing new can have happened. TRY: the same of earlier tries; None without any.
        retry_after: WAIT and UNKNOWN: when asking again makes sense; None when only a person can help.
    """

    act: Act
    doubt_at: datetime | None = None
    retry_after: timedelta | None = None


_SETTLED = {
    OperationState.PENDING: Act.TRY,
    OperationState.SUCCEEDED: Act.ANSWER,
    OperationState.FAILED_FINAL: Act.REFUSE,
}


def decide(record: Operation | None, asked: Asked, now: datetime) -> Decision:
    """Say what to do.

    Args:
        record: What is stored under the name, None for nothing.
        asked: What is asked for.
        now: The database's time.
    """
    if record is None or expired(record, now):
        return Decision(Act.BEGIN)
    if record.fingerprint != asked.fingerprint:
        return Decision(Act.REUSED)
    if record.state is OperationState.RUNNING:
        return _running(record, asked.repeat, now)
    doubtful = record.state is OperationState.PENDING and record.doubt_at is not None
    if record.state is OperationState.UNKNOWN or doubtful:
        return _unknown(record, asked.repeat, now)
    return Decision(_SETTLED[record.state])


def expired(record: Operation, now: datetime) -> bool:
    """Whether a record counts as forgotten; never while somebody holds it."""
    held = record.state is OperationState.RUNNING and record.wake_at is not None and record.wake_at > now
    return record.expires_at is not None and record.expires_at <= now and not held


def _running(record: Operation, repeat: Repeat, now: datetime) -> Decision:
    ends = record.wake_at or now
    if ends > now:
        return Decision(Act.WAIT, retry_after=ends - now)
    if repeat is Repeat.SAFE:
        return Decision(Act.TRY, doubt_at=record.doubt_at or ends)
    if repeat is Repeat.ASK_FIRST:
        return Decision(Act.ASK, doubt_at=record.doubt_at or ends)
    return Decision(Act.LOST)


def _unknown(record: Operation, repeat: Repeat, now: datetime) -> Decision:
    if repeat is Repeat.SAFE:
        return Decision(Act.TRY, doubt_at=record.doubt_at or now)
    if repeat is Repeat.NEVER:
        return Decision(Act.UNKNOWN)
    if record.wake_at is not None and record.wake_at > now:
        return Decision(Act.UNKNOWN, retry_after=record.wake_at - now)
    return Decision(Act.ASK, doubt_at=record.doubt_at or now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a held operation ends as.

    Attributes:
        ask_after: UNKNOWN: how long nobody asks.
        doubt: Whether a try may have taken effect that nobody knows of.
        doubt_at: When the last such try ended; None: just now.
        keep: How long the record is kept; ignored for UNKNOWN, which is kept until it is settled.
    """

    state: OperationState
    keep: timedelta = timedelta(0)
    ask_after: timedelta = timedelta(0)
    doubt: bool = False
    doubt_at: datetime | None = None
    result: str | None = None
    response_code: int | None = None
    response_headers: str | None = None
    response_body: bytes | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    code: str | None = None
    message: str | None = None

    @property
    def definite(self) -> bool:
        """Whether it tells what became of the operation, whoever holds it by now."""
        return self.state in {OperationState.SUCCEEDED, OperationState.FAILED_FINAL}


def operation_key(name: Name) -> str:
    """Return the key under which the other side sees an operation: always the same for (tenant, kind, key).

    A UUID version 8 (RFC 9562, 5.8) of the first 16 bytes of SHA-256 over the three, each with its length before it, so
    that no two triples read the same. It has a form and length that every provider takes, and shows none of the three.
    """
    parts = "".join(f"{len(part)}:{part}" for part in name)
    value = int.from_bytes(hashlib.sha256(b"milepost.operation " + parts.encode()).digest()[:16])
    value = value & ~(0xF << 76) | 0x8 << 76
    return str(UUID(int=value & ~(0b11 << 62) | 0b10 << 62))
