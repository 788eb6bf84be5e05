"""Clock, ids and randomness: the only file that may ask the machine for them.

Everything else takes these as arguments, so that a test can stop the clock and repeat the dice.

Ids are the driver's own kind of `uuid.UUID`, of which it returns them too: made, compared, written and sent in C.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from asyncpg.pgproto import pgproto

#: Namespace of ids derived from (tenant, source, id); a fixed random UUID.
EVENT_NAMESPACE = UUID("6a0d3c2e-4b6f-5a0e-9a53-0f6f6d1f7c11")


#: Longest id of an event, in characters; a longer one names nothing.
LONGEST_ID = 1024

#: How `str` writes a UUID version 7.
_VERSION_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Clock(Protocol):
    """Where wall time and elapsed time come from."""

    def now(self) -> datetime:
        """Return the current instant, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return elapsed seconds from an arbitrary start; never goes back."""
        ...


class Ids(Protocol):
    """Where new identifiers come from."""

    def new(self) -> UUID:
        """Return a new UUID version 7 (RFC 9562), larger than those this process made before."""
        ...


class Randomness(Protocol):
    """Where jitter comes from."""

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        ...


#: Linux's monotonic clock stands still while a machine is suspended, and leases in a database do not: clock_gettime(2).
_ELAPSED: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return elapsed seconds, those in which the machine was suspended included where it can tell them (Linux)."""
        return time.monotonic() if _ELAPSED is None else time.clock_gettime(_ELAPSED)


def uuid7_at(milliseconds: int, tail: int) -> UUID:
    """Build a UUID version 7 (RFC 9562 section 5.7).

    Args:
        milliseconds: Unix time in milliseconds, 48 bits are kept.
        tail: 74 bits that follow it (12 for rand_a, 62 for rand_b).

    Returns:
        The UUID, with version and variant bits set.
    """
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= ((tail >> 62) & 0xFFF) << 64
    value |= 0b10 << 62
    value |= tail & ((1 << 62) - 1)
    return pgproto.UUID(value.to_bytes(16, "big"))


def event_identity(tenant: str, source: str, event_id: str) -> UUID:
    """Return the inbox identity of an event.

    Args:
        tenant: Tenant, '' for none.
        source: CloudEvents source.
        event_id: CloudEvents id as text.

    Returns:
        The id itself where it is a UUID version 7 (unique by construction), else uuid5 over all three
        (RFC 9562 section 5.5), each part length-prefixed so that no two triples read the same.
    """
    if _VERSION_7.fullmatch(event_id):
        return pgproto.UUID(event_id)
    try:
        parsed = UUID(event_id)
    except ValueError:
        parsed = None
    if parsed is not None and parsed.version == 7 and str(parsed) == event_id.lower():
        return pgproto.UUID(parsed.bytes)
    parts = "".join(f"{len(part)}:{part}" for part in (tenant, source, event_id))
    # uuid5 of the standard library refuses lone surrogates; this is the same for all other text.
    digest = hashlib.sha1(EVENT_NAMESPACE.bytes + parts.encode(errors="surrogatepass"), usedforsecurity=False)
    return pgproto.UUID(UUID(bytes=digest.digest()[:16], version=5).bytes)


def place_identity(topic: str, partition: int, offset: int, timestamp_ms: int) -> UUID:
    """Return the inbox identity of a record that names none: its place, and its timestamp, since a topic that was
    deleted and made anew has the same places again.

    Args:
        timestamp_ms: The record's timestamp, which is the same whenever it is read.
    """
    return event_identity("", f"kafka:{topic}", f"{partition}:{offset}:{timestamp_ms}")


def _random(bits: int) -> int:
    """Return `secrets.randbits(bits)`, without the three calls that it goes through."""
    count = (bits + 7) // 8
    return int.from_bytes(os.urandom(count), "big") >> (count * 8 - bits)


class SystemIds:
    """UUID version 7 from the machine's clock; monotonic within the process."""

    def __init__(self) -> None:
        self._last = 0
        self._tail = 0

    def new(self) -> UUID:
        """Return a new id, larger than the last one even within one millisecond or after a clock step."""
        milliseconds = time.time_ns() // 1_000_000
        if milliseconds > self._last:
            self._last = milliseconds
            self._tail = _random(73)
        else:
            self._tail += 1 + _random(32)
            if self._tail >> 74:
                self._last += 1
                self._tail = _random(73)
        return uuid7_at(self._last, self._tail)


def random_bytes(count: int) -> bytes:
    """Return bytes that nobody can foresee, for nonces; a test that repeats the dice must not repeat these."""
    return secrets.token_bytes(count)


class SystemRandomness:
    """The machine's pseudo-random generator."""

    def uniform(self) -> float:
        """Return `random.random()`."""
        return random.random()


@dataclass
class ManualClock:
    """A clock that only moves when told to, for tests.

    Attributes:
        current: What `now()` returns.
    """

    current: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    _elapsed: float = field(default=0.0)

    def now(self) -> datetime:
        """Return the current setting."""
        return self.current

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    def advance(self, by: timedelta) -> None:
        """Move both clocks forward by `by`."""
        self.current += by
        self._elapsed += by.total_seconds()
