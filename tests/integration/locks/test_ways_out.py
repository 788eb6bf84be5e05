"""A lock is held from the start until the run is final: every way out gives it to the next, and no other state does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from milepost import RunRef, Saga, Then
from milepost.sagas.facts import Wake

from tests.support.locks import Locks, Sale, locks, patient, sale

OVER = ["SUCCEEDED", "FAILED", "COMPENSATED", "CANCELLED", "EXPIRED"]
HELD = ["COMPENSATION_FAILED", "MANUAL_REQUIRED", "RUNNING", "COMPENSATING"]


def saga_for(state: str) -> Saga[Sale]:
    """Return a saga that can come to that state."""
    if state == "CANCELLED":
        return patient(Then.CANCEL)
    if state == "EXPIRED":
        return sale(deadline=lambda o: o.until)
    return sale()


async def bring(it: Locks, run: RunRef, state: str) -> None:
    """Bring a run that has begun to a state."""
    if state == "SUCCEEDED":
        await it.sold(run)
    elif state == "FAILED":
        await it.step(run, "reserve", fails="NO")
    elif state in {"COMPENSATED", "COMPENSATION_FAILED", "COMPENSATING"}:
        await it.step(run, "reserve")
        await it.step(run, "ship", fails="NO")
        if state != "COMPENSATING":
            await it.step(run, "release", fails="" if state == "COMPENSATED" else "NO")
    elif state == "MANUAL_REQUIRED":
        await it.step(run, "reserve")
        await it.lose(run, "ship")
    elif state == "RUNNING":
        await it.step(run, "reserve")
    elif state == "CANCELLED":
        await it.it.clock("2 hours")
        await it.it.engine.change(run.id, Wake("paid", 1))
    else:
        await it.it.clock("1 hour")
        await it.it.engine.change(run.id, Wake(None, 0))
    assert (await it.it.states(run.id))[""] == state


@pytest.mark.parametrize("state", [*OVER, *HELD])
async def test_a_run_that_is_over_hands_on_and_another_keeps(database_url: str, state: str) -> None:
    order, other = saga_for(state), sale("other")
    async with locks(database_url, order, other) as it:
        more = {"until": datetime.now(UTC) + timedelta(minutes=30)} if state == "EXPIRED" else {}
        first = await it.start(order, "o-1", **more)
        second = await it.start(other, "o-2")
        await it.look()
        await bring(it, first, state)
        await it.look()
        assert await it.begun(second) is (state in OVER)
        assert await it.holder() == (second if state in OVER else first).id
