"""The order of the files in a parallel run."""

from __future__ import annotations

from tests.support.house import ROOT
from tests.support.ordering import COMPUTING, NEXT, WAITING, in_order


def test_every_named_place_is_there() -> None:
    assert [place for place in WAITING + COMPUTING + NEXT if not (ROOT / place).exists()] == []


def test_those_that_wait_and_those_that_compute_take_turns_and_short_ones_come_last() -> None:
    files = [
        "tests/chaos/test_a.py",
        "tests/chaos/test_b.py",
        "tests/integration/test_c.py",
        "tests/property/test_d.py",
        "tests/unit/test_e.py",
        "tests/acceptance/test_f.py",
    ]
    assert in_order(files) == [
        "tests/acceptance/test_f.py",
        "tests/property/test_d.py",
        "tests/chaos/test_a.py",
        "tests/chaos/test_b.py",
        "tests/integration/test_c.py",
        "tests/unit/test_e.py",
    ]
