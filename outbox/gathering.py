"""Pages of which nothing is in a hurry, kept until they are worth a request. Pure.

A request, its answer and what reads it cost the same for one row as for a hundred (docs/performance.md). Whoever is
told of rows before they are sent may have taken all of them, and then nobody waits for their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .position import Page, Position, Row

#: Longest time for which rows are kept, in seconds: the longest wait between two looks (outbox/pace.py).
LONGEST = 0.032
#: Rows that are worth a request.
MANY = 256


class Gathering:
    """Puts whole ticks together, one right behind the other: what one later look would have brought."""

    def __init__(self) -> None:
        self._page: Page | None = None
        self._since = 0.0

    @property
    def empty(self) -> bool:
        """Whether nothing is kept, so that all that was found is done or under way."""
        return self._page is None

    def add(self, page: Page, now: float, *, urgent: bool) -> Sequence[Page]:
        """Return what is to be sent now, in order; nothing when the page is kept.

        Args:
            page: Follows all that were added before.
            now: Elapsed time in seconds.
            urgent: Somebody may wait for a record of it.
        """
        kept, self._page = self._page, None
        if not _whole(page):
            return [page] if kept is None else [kept, page]
        if kept is None:
            self._since = now
        else:
            # The place up to which the second has the log flushed is behind that of the first.
            rows = sorted([*kept.rows, *page.rows], key=_number)
            page = replace(page, rows=rows, before=Position(kept.before.previous, page.before.current))
        if urgent or len(page.rows) >= MANY or now - self._since >= LONGEST:
            return [page]
        self._page = page
        return []

    def due(self, now: float) -> Page | None:
        """Return what has been kept for long enough.

        Args:
            now: Elapsed time in seconds.
        """
        if self._page is None or now - self._since < LONGEST:
            return None
        page, self._page = self._page, None
        return page


def _number(row: Row) -> int:
    return row[0]


def _whole(page: Page) -> bool:
    """Whether a page is all that its tick brings."""
    return page.before.last_seq == 0 and page.after.settled
