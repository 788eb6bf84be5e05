"""The lease is over for its holder before the database gives it to another; waits have jitter and few words."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost.outbox.lease import Lease, LeaseLost, Terms
from milepost.outbox.patience import Backoff, Trouble
from milepost.schemas.ids import ManualClock


class Dice:
    def uniform(self) -> float:
        return 0.5


def test_it_counts_from_before_it_was_asked_for() -> None:
    clock = ManualClock()
    asked_at = clock.monotonic()
    clock.advance(timedelta(seconds=8))  # the answer was slow
    pool: Any = None
    lease = Lease(pool, Terms("outbox", UUID(int=1), timedelta(seconds=10)), 1, asked_at, clock=clock)
    assert 0 < lease.remaining() < 2
    clock.advance(timedelta(seconds=1.5))
    with pytest.raises(LeaseLost):
        lease.check()


def test_backoff_grows_to_its_cap_and_starts_anew() -> None:
    backoff = Backoff(Dice(), first=1, cap=5)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 2.5, 2.5]
    backoff.reset()
    assert backoff.next() == 0.5


def test_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    trouble = Trouble(clock)
    with caplog.at_level(logging.WARNING, "milepost"):
        for _ in range(121):
            trouble.meet("Kafka is away")
            clock.advance(timedelta(seconds=1))
    assert len(caplog.records) == 3
    assert trouble.lasting() == 121
    trouble.over()
    assert (trouble.lasting(), trouble.text) == (0, "")
