"""What a dead letter is made of; pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from ..schemas.envelope import Record
from ..schemas.ids import event_identity

_MESSAGE = 2_000
#: Longest key that is kept as it is in a hold, in bytes: PostgreSQL indexes no value above about 2,700.
_KEY = 1_000


def scope_of(consumer: str) -> str:
    """Return what letters and holds of a consumer are filed under."""
    return f"consumer:{consumer}"


def letter_id(scope: str, record: Record) -> UUID:
    """Return the id of a record's dead letter, the same each time, so that a redelivered record has one."""
    where = f"{record.partition}:{record.offset}:{record.timestamp_ms}"
    return event_identity("", f"letter:{scope}:{record.topic}", where)


def hold_name(key: bytes) -> bytes:
    """Return the name under which a record key is held: the key itself, a long one's digest."""
    return key if len(key) <= _KEY else b"sha256:" + hashlib.sha256(key).digest()


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
