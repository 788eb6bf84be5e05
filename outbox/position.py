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

#: Rows of a page, and what may be repeated after a kill of the relay.
PAGE_ROWS = 3000
#: In place of a place in the server's log: one that is not reached, so that its end has to be.
UNKNOWN = "FFFFFFFF/FFFFFFFF"
#: Longest time for which what was sent is not stored, in seconds.
_UNSTORED = 0.1

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
        until: Place in the server's log (pg_lsn) up to which it has to be flushed before these rows are sent, since
            some may have been committed without waiting for that; None when it was.
    """

    rows: Sequence[Row]
    before: Position
    after: Position
    behind: int
    until: str | None = None


def may_go(page: Page, sent: int, seconds: float) -> bool:
    """Tell whether a page may be sent before the position ahead of it is stored.

    Storing costs as much for one row as for thousands. What is repeated after a kill stays within a page, and a tick
    that needs several is always resumed in its own order.

    Args:
        sent: Rows that were sent since a position was stored.
        seconds: Time since then.
    """
    alone = page.before.last_seq == 0 and page.after.settled
    return alone and page.until is None and sent + len(page.rows) <= PAGE_ROWS and seconds < _UNSTORED


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
