"""How far a page has come, and reading a snapshot's text."""

from __future__ import annotations

import pytest
from milepost.outbox.position import PAGE_ROWS, Page, Position, Snapshot, contiguous, may_go, parse_snapshot

BEFORE = Position((5, 9, (7,)), (9, 12, ()), 3)
AFTER = Position((9, 12, ()), (9, 12, ()))


def page(*seqs: int) -> Page:
    return Page([(seq, "t", "k", b"", "{}") for seq in seqs], BEFORE, AFTER, 0)


@pytest.mark.parametrize(
    ("done", "last"), [(set(), 3), ({4}, 4), ({4, 6}, 6), ({6, 9}, 3), ({4, 6, 8}, 6)], ids=str
)
def test_a_gap_ends_it(done: set[int], last: int) -> None:
    assert contiguous(page(4, 6, 7, 8), done) == Position(BEFORE.previous, BEFORE.current, last)


def test_all_done_is_the_end_of_the_page() -> None:
    assert contiguous(page(4, 6), {4, 6, 5}) == AFTER


@pytest.mark.parametrize(
    ("text", "snapshot"), [("10:20:10,14", (10, 20, (10, 14))), ("7:7:", (7, 7, ()))], ids=str
)
def test_snapshots(text: str, snapshot: Snapshot) -> None:
    assert parse_snapshot(text) == snapshot


def small(rows: int = 1, *, until: str | None = None) -> Page:
    here = Position((9, 9, ()), (9, 9, ()))
    return Page([(n, "t", "k", b"", "{}") for n in range(rows)], here, here, 0, until)


@pytest.mark.parametrize(
    ("page", "sent", "seconds", "may"),
    [
        (small(), 0, 0.0, True),
        (small(500), PAGE_ROWS - 500, 0.09, True),
        (small(500), PAGE_ROWS - 499, 0.0, False),  # more than a page would be repeated after a kill
        (small(), 0, 0.1, False),
        (small(until="0/1A"), 0, 0.0, False),  # it may not be durable yet
        (page(4, 6), 0, 0.0, False),  # in the middle of a tick
    ],
    ids=str,
)
def test_when_a_page_may_go_before_its_position_is_stored(
    page: Page, sent: int, seconds: float, may: bool
) -> None:
    assert may_go(page, sent, seconds) is may
