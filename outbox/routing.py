"""What is known about topics and keys, and which rows are therefore put aside. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from hashlib import sha256

from .position import Row

#: A single record over this is not even tried: brokers close a connection at 100 MB (socket.request.max.bytes).
RECORD_BYTES = 50_000_000

TOPIC_SCOPE, KEY_SCOPE = "relay:topic", "relay:key"

#: What the deltas and the length of a later record of a batch may take beyond those of the first.
LATER_ROOM = 10


class Everything(Container[str]):
    """Holds whatever it is asked for."""

    def __contains__(self, _: object) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True, slots=True)
class Parked:
    """A row that is not sent.

    Attributes:
        scope: relay:topic while its topic cannot be written, relay:key for the row's own sake.
        hold: Whether later rows of the topic or key must wait behind it.
        recoverable: Whether it may be sent as it is, once the cause is mended.
    """

    seq: int
    topic: str
    key: str | None
    scope: str
    code: str
    message: str
    hold: bool = False
    recoverable: bool = True


@dataclass(slots=True)
class Routing:
    """What is known about topics and keys; shared by encoder and sender, changed only between pages.

    Attributes:
        held_topics: Topics whose rows are parked, with code and message.
        held_keys: Keys (as `hold_key` makes them) whose rows are parked behind an earlier one.
        holding: Topics whose keys are held when a row is parked.
        limits: Largest batch that a topic takes, in bytes, where it is known.
        caps: Largest batch that is built for a topic, where larger ones were refused for a reason that Kafka hides.
        compacted: Topics that take no record without a key.
        alone: Rows that go in a batch of their own, because one of theirs was refused.
        unsendable: Rows that the broker refused one by one, with code and message.
        nameless: What rows name as their topic, and no topic can be called.
    """

    held_topics: dict[str, tuple[str, str]] = field(default_factory=dict)
    held_keys: set[tuple[str, bytes]] = field(default_factory=set)
    holding: Container[str] = frozenset()
    limits: dict[str, int] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)
    unsendable: dict[int, tuple[str, str]] = field(default_factory=dict)
    nameless: set[str] = field(default_factory=set)

    def tight(self, usual: int) -> set[str]:
        """Return the topics that take or are given less than a usual batch.

        Args:
            usual: In bytes.
        """
        return {topic for sizes in (self.limits, self.caps) for topic, size in sizes.items() if size < usual}

    def room(self, topic: str) -> int | None:
        """Return the largest batch to build for a topic, in bytes; None where the usual one is right."""
        sizes = [size[topic] for size in (self.limits, self.caps) if topic in size]
        return min(sizes) if sizes else None

    def settled(self, seq: int) -> None:
        """Forget a row that has been sent or put aside."""
        self.alone.discard(seq)
        self.unsendable.pop(seq, None)

    def refusal(self, row: Row, size: int, draining: str | None) -> Parked | None:
        """Return how a row is put aside, None when it is to be sent; a row that holds its key does so at once.

        Args:
            size: Of a batch of this record alone, in bytes.
            draining: The topic whose hold is being worked off, if any: its rows are sent, not put aside again.
        """
        seq, topic, key, *_ = row
        if topic in self.nameless:
            return self.put_aside(row, "ROW_INVALID", f"no topic can be called {topic[:60]!r}")
        held = None if key is None else (topic, hold_key(key.encode()))
        if held in self.held_keys:
            return Parked(seq, topic, key, KEY_SCOPE, "KEY_HELD", "waits behind an earlier row of its key")
        if topic in self.held_topics and topic != draining:
            code, message = self.held_topics[topic]
            return Parked(seq, topic, key, TOPIC_SCOPE, code, message, hold=True)
        found = self.unsendable.get(seq) or self._against_the_limit(topic, size)
        return None if found is None else self.put_aside(row, *found)

    def put_aside(self, row: Row, code: str, message: str) -> Parked:
        """Put a row aside for its own sake; where its topic says so, its key is held at once."""
        seq, topic, key, *_ = row
        hold = key is not None and topic in self.holding and topic not in self.nameless
        if hold and key is not None:
            self.held_keys.add((topic, hold_key(key.encode())))
        return Parked(seq, topic, key, KEY_SCOPE, code, message, hold, code != "ROW_INVALID")

    def _against_the_limit(self, topic: str, size: int) -> tuple[str, str] | None:
        limit = min(self.limits.get(topic, RECORD_BYTES), RECORD_BYTES)
        if size <= limit:
            return None
        return "TOO_LARGE", f"the record is {size} bytes, and {topic} takes {limit}"


def hold_key(key: bytes) -> bytes:
    """Return a record key as holds have it: itself, or its hash where it would not fit into an index.

    The same is done by milepost.hold_key() in SQL.
    """
    return sha256(key).digest() if len(key) > 1000 else key
