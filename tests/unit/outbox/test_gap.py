"""How long the relay waits after a page before it looks again."""

from __future__ import annotations

import pytest
from milepost.outbox.feeder import gap_after
from milepost.outbox.position import BEFORE_ALL, Page, Position


@pytest.mark.parametrize(
    ("rows", "behind", "gap"),
    [
        (1, 0, 0.004),
        (7, 0, 0.004),
        (8, 0, 0.010),
        (255, 0, 0.010),
        (256, 0, 0.0),
        (3000, 9, 0.0),
        (1, 9, 0.0),
    ],
)
def test_small_pages_are_given_time_to_grow_and_a_backlog_none(rows: int, behind: int, gap: float) -> None:
    settled = Position(BEFORE_ALL, BEFORE_ALL)
    page = Page([(n, "t", None, b"", "{}") for n in range(rows)], settled, settled, behind)
    assert gap_after(page) == gap
