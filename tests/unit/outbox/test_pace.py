"""How long the relay waits before it looks again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.pace import Pace


def after(rate: float, seconds: float = 2.0) -> float:
    """The wait once rows have come for a while at a steady rate, looked at whenever the pace says."""
    pace, now, gap = Pace(0.0), 0.0, 0.004
    while now < seconds:
        period = gap + 0.004
        now += period
        gap = pace.gap(max(1, round(rate * period)), 0, now)
    return gap


@pytest.mark.parametrize(
    ("rate", "lowest", "highest"),
    [
        (10, 0.004, 0.004),
        (500, 0.004, 0.006),
        (800, 0.010, 0.024),
        (1100, 0.028, 0.032),
        (5000, 0.032, 0.032),
    ],
)
def test_the_faster_rows_come_the_longer_it_waits(rate: float, lowest: float, highest: float) -> None:
    assert lowest <= after(rate) <= highest


def test_a_burst_after_silence_changes_nothing() -> None:
    assert Pace(0.0).gap(100, 0, 5.0) == 0.004


def test_it_comes_back_to_the_short_wait() -> None:
    pace, now = Pace(0.0), 0.0
    for _ in range(50):
        now += 0.036
        assert pace.gap(72, 0, now) >= 0.004
    waits: list[float] = []
    for _ in range(20):
        now += waits[-1] + 0.004 if waits else 0.036
        waits.append(pace.gap(1, 0, now))
    assert waits[0] > 0.025 and waits[-1] == 0.004


@pytest.mark.parametrize(("rows", "behind"), [(1, 9), (3000, 9), (256, 0), (3000, 0)])
def test_no_wait_while_there_is_much_to_do(rows: int, behind: int) -> None:
    assert Pace(0.0).gap(rows, behind, 0.01) == 0.0


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1), st.floats(0, 100)), max_size=50))
def test_never_longer_than_the_long_wait(looks: list[tuple[int, int, float]]) -> None:
    pace, now = Pace(0.0), 0.0
    for rows, behind, passed in looks:
        now += passed
        assert 0.0 <= pace.gap(rows, behind, now) <= 0.032
