"""Where a partition's reading begins."""

from __future__ import annotations

import pytest
from milepost.streams.reader_start import Known, Start, find_start, start_offset


@pytest.mark.parametrize(
    ("committed", "stored", "start"),
    [(None, None, None), (5, None, 5), (None, 5, 5), (5, 3, 3), (3, 5, 3), (0, 5, 0), (5, 0, 0)],
)
def test_the_lower_of_what_is_known(committed: int | None, stored: int | None, start: int | None) -> None:
    assert start_offset(committed, stored) == start


@pytest.mark.parametrize(
    ("known", "start", "anew"),
    [
        # committed, stored, begin, end, sent_since
        (Known(None, None, 3, 9), None, False),
        (Known(5, 5, 0, 9), 5, False),
        (Known(9, 9, 0, 9), 9, False),
        # the group was reset: to the earliest, to the latest
        (Known(0, 5, 0, 9), 0, False),
        (Known(9, 5, 0, 9), 5, False),
        # the group's offsets are gone; what was sent since the position was moved is read again
        (Known(None, 5, 0, 9), 5, False),
        (Known(None, 5, 0, 9, 4), 4, False),
        (Known(None, 5, 0, 9, 7), 5, False),
        (Known(None, 5, 0, 9, 0), 0, False),
        # retention was faster
        (Known(2, 4, 6, 9), 6, False),
        # another topic under the same name, whichever of both knows the old one
        (Known(None, 10, 0, 9), 0, True),
        (Known(3, 10, 2, 9), 2, True),
        (Known(10, None, 2, 9), 2, True),
        # the group was set beyond what is committed, or the topic is new and the database of yesterday
        (Known(10, 5, 2, 9), 5, False),
        (Known(10, 5, 2, 9, 3), 3, False),
    ],
)
def test_every_doubt_is_answered_from_further_back(known: Known, start: int | None, anew: bool) -> None:
    found = find_start(known)
    assert (found.offset, found.anew) == (start, anew)


def test_what_people_should_know_is_said() -> None:
    assert find_start(Known(5, 5, 0, 9)) == Start(5)
    assert "made anew" in find_start(Known(None, 10, 0, 9)).remark
    assert "4 offsets from 2 on were removed" in find_start(Known(4, 2, 6, 9)).remark
    assert "2 offsets from 4 on were removed" in find_start(Known(2, 4, 6, 9)).remark
    assert find_start(Known(2, 8, 6, 9)) == Start(6), "what is gone was read"
