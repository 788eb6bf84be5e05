"""Where the relay stands: two snapshots and the last row sent between them.

A transaction counts when it is first seen to have committed, never by a row's number: a row whose number is low
but whose transaction commits late is sent late, instead of being passed over.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: xmin, xmax and the transactions in progress between them, as asyncpg reads pg_snapshot.
Snapshot: TypeAlias = tuple[int, int, tuple[int, ...]]

#: Sees nothing as committed, so that a first relay sends every row there is.
BEFORE_ALL: Snapshot = (1, 1, ())


#: What the relay sends of one outbox row: number, topic, key, value, and headers as JSON text.
Row: TypeAlias = tuple[int, str, str | None, bytes | None, str]


@dataclass(frozen=True, slots=True)
class Position:
    """Everything visible in `previous` is done, and of what only `current` sees, the rows up to `last_seq`."""

    previous: Snapshot = BEFORE_ALL
    current: Snapshot = BEFORE_ALL
    last_seq: int = 0

    @property
    def settled(self) -> bool:
        """Whether nothing between the two snapshots can be left."""
        return self.previous == self.current


@dataclass(frozen=True, slots=True)
class Page:
    """Rows to be sent together, in the order of their numbers.

    Attributes:
        before: Position that holds while the page is being sent: all earlier pages are done.
        after: Position once the page is done.
        behind: Rows of the same tick that later pages bring.
    """

    rows: Sequence[Row]
    before: Position
    after: Position
    behind: int


def parse_snapshot(text: str) -> Snapshot:
    """Read a pg_snapshot's text, xmin:xmax:xip,xip,…"""
    xmin, xmax, running = text.split(":")
    return int(xmin), int(xmax), tuple(map(int, running.split(","))) if running else ()


def contiguous(page: Page, done: Container[int]) -> Position:
    """Return how far a page that was done in part has come without a gap.

    Args:
        done: Numbers of rows that were acknowledged.
    """
    last = page.before.last_seq
    for seq, *_ in page.rows:
        if seq not in done:
            return Position(page.before.previous, page.before.current, last)
        last = seq
    return page.after
