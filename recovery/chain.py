"""The chain of hashes over the audit: what an entry's digest is, what a link is, and where a chain is broken. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

#: Fields of an entry, in the order in which they are hashed; all of them as text, `at` in microseconds since 1970.
FIELDS = (
    *("id", "at_us", "tenant", "actor", "kind", "act", "outcome", "run_id", "step", "reason"),
    *("before", "after", "evidence"),
)
#: What the first link rests on.
BEGINNING = bytes(32)
_FORM = b"milepost.audit/1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry's place in the chain.

    Attributes:
        n: From 1, without gaps.
        digest: Of the entry.
        hash: Of the previous link's hash and of everything here.
    """

    n: int
    id: UUID
    at: datetime
    digest: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """The first entry that is not as it was.

    Attributes:
        what: changed: the entry says something else than it did. removed: it is gone, and no month was dropped with it.
            inserted: it never had a place, and waits for none. chain: the link itself was changed, removed or moved.
        n: Its place; None where it has none.
    """

    what: Literal["changed", "removed", "inserted", "chain"]
    n: int | None
    id: UUID | None
    text: str


def digest_of(entry: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of an entry; every field with its length, so that no two entries read the same."""
    found = hashlib.sha256(_FORM)
    for name in FIELDS:
        value = entry[name]
        data = b"" if value is None else str(value).encode(errors="surrogatepass")
        found.update((b"-" if value is None else b"+") + len(data).to_bytes(8, "big") + data)
    return found.digest()


def hash_of(previous: bytes, n: int, id: UUID, at: datetime, digest: bytes) -> bytes:
    """Return the hash of a link that follows another one."""
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    parts = (previous, n.to_bytes(8, "big"), id.bytes, micros.to_bytes(16, "big", signed=True), digest)
    return hashlib.sha256(b"".join(parts)).digest()


def link(previous: Link | None, entries: Sequence[Mapping[str, Any]]) -> Iterator[Link]:
    """Give entries their places after a link; None for an empty chain."""
    n, last = (0, BEGINNING) if previous is None else (previous.n, previous.hash)
    for entry in entries:
        n += 1
        digest = digest_of(entry)
        last = hash_of(last, n, entry["id"], entry["at"], digest)
        yield Link(n, entry["id"], entry["at"], digest, last)


@dataclass(slots=True)
class Walk:
    """Goes along a chain, link by link, until the first one that is broken.

    Attributes:
        n: Place of the last link that was whole.
        last: Its hash.
        entries: How many entries were there and as they were.
        gone: How many went with a month that was dropped by its age.
    """

    n: int = 0
    last: bytes = BEGINNING
    entries: int = 0
    gone: int = 0

    def step(self, one: Link, entry: Mapping[str, Any] | None, *, retired: bool) -> Broken | None:
        """Go on to a link; None when it is whole.

        Args:
            entry: What the audit has of it; None when it has nothing.
            retired: Its month was dropped by its age.
        """
        if one.n != self.n + 1:
            return Broken("chain", self.n + 1, None, f"link {self.n + 1} is missing; the next one is {one.n}")
        if hash_of(self.last, one.n, one.id, one.at, one.digest) != one.hash:
            text = f"link {one.n} does not follow from the one before it: one of the two was changed or moved"
            return Broken("chain", one.n, one.id, text)
        if entry is None and not retired:
            return Broken(
                "removed",
                one.n,
                one.id,
                f"entry {one.id}, sealed as {one.n}, is gone or its time was changed",
            )
        if entry is not None and digest_of(entry) != one.digest:
            text = f"entry {one.id}, sealed as {one.n}, says something else now than when it was sealed"
            return Broken("changed", one.n, one.id, text)
        self.n, self.last = one.n, one.hash
        self.entries += entry is not None
        self.gone += entry is None
        return None
