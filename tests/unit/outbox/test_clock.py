"""A lease must be over for its holder after the machine slept through it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost.outbox.lease import Lease, LeaseLost, Terms
from milepost.schemas.ids import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells the time of a suspension")
def test_a_suspension_ends_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real = SystemClock(), time.clock_gettime
    pool: Any = None
    lease = Lease(
        pool, Terms("outbox", UUID(int=1), timedelta(seconds=10)), 1, clock.monotonic(), clock=clock
    )
    lease.check()

    def slept(which: int) -> float:
        """The machine's clocks after a minute's sleep: CLOCK_MONOTONIC stands still in it."""
        return real(which) + (60.0 if which == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", slept)
    with pytest.raises(LeaseLost):
        lease.check()
