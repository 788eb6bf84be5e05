"""Where a partition's reading begins."""

from __future__ import annotations

import pytest
from milepost.streams.reader_lane import start_offset


@pytest.mark.parametrize(
    ("committed", "stored", "start"),
    [(None, None, None), (5, None, 5), (None, 5, 5), (5, 3, 3), (3, 5, 3), (0, 5, 0), (5, 0, 0)],
)
def test_the_lower_of_what_is_known(committed: int | None, stored: int | None, start: int | None) -> None:
    assert start_offset(committed, stored) == start
