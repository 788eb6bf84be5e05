"""Deadlines and active time in the kit: what the users' own tests would look like, with the ledger as the witness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

from milepost import Milepost, RunRef, RunState, Saga
from milepost.testing import Kit
from sqlalchemy import text

from tests.support.kitshop import opened
from tests.support.trips import Departed, Office, Trip, trips

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Travel(NamedTuple):
    """A trip that waits for its departure."""

    kit: Kit
    service: Milepost
    run: RunRef
    office: Office

    async def row(self) -> tuple[str, str | None, timedelta]:
        """Return state, cause and active time of the run, as stored."""
        query = text("SELECT state, cause, active_for FROM milepost.run WHERE id = :id")
        async with self.service.transaction() as tx:
            found = (await tx.session.execute(query, {"id": self.run.id})).one()
        return (found.state, found.cause, found.active_for)


@asynccontextmanager
async def travelling(saga: Saga[Trip], *, due_in: timedelta | None = None) -> AsyncIterator[Travel]:
    """Open a kit with a trip that waits, and has booked."""
    async with opened(saga) as (kit, _, service):
        office = Office()
        kit.provide(Office, office)
        async with service.transaction() as tx:
            now = (await tx.session.execute(text("SELECT milepost.clock()"))).scalar_one()
        run = await kit.start(saga, Trip(id="t-1", due=None if due_in is None else now + due_in))
        await kit.until(run, RunState.WAITING)
        assert office.ledger == ["book"]
        yield Travel(kit, service, run, office)


def limited() -> Saga[Trip]:
    """A saga whose deadline is in its input."""
    return trips(deadline=lambda trip: trip.due)


async def test_a_run_that_waits_expires_and_what_was_done_is_undone() -> None:
    async with travelling(limited(), due_in=DAY) as travel:
        await travel.kit.advance(DAY - timedelta(seconds=1))
        assert (await travel.row())[0] == "WAITING"
        await travel.kit.advance(timedelta(seconds=1))
        await travel.kit.until(travel.run, RunState.EXPIRED)
        await travel.kit.deliver(Departed(id="t-1"))
        await travel.kit.advance(DAY)
        assert travel.office.ledger == ["book", "unbook"]
        assert (await travel.row())[:2] == ("EXPIRED", "DEADLINE")


async def test_a_run_that_ends_in_time_does_not_expire() -> None:
    async with travelling(limited(), due_in=DAY) as travel:
        await travel.kit.advance(DAY - timedelta(seconds=1))
        await travel.kit.deliver(Departed(id="t-1"))
        await travel.kit.until(travel.run, RunState.SUCCEEDED)
        await travel.kit.advance(2 * DAY)
        assert travel.office.ledger == ["book", "close"]
        assert (await travel.row())[:2] == ("SUCCEEDED", None)


async def test_waiting_is_not_active_and_trying_is() -> None:
    async with travelling(trips(active_timeout=HOUR)) as travel:
        travel.office.shut = True
        await travel.kit.advance(20 * DAY)
        assert (await travel.row())[0] == "WAITING"
        await travel.kit.deliver(Departed(id="t-1"))
        await travel.kit.advance(59 * timedelta(minutes=1))
        assert (await travel.row())[0] == "RUNNING"
        await travel.kit.advance(timedelta(minutes=1))
        await travel.kit.until(travel.run, RunState.EXPIRED)
        tried = travel.office.calls
        await travel.kit.advance(DAY)
        assert tried == travel.office.calls > 5
        assert travel.office.ledger == ["book", "unbook"]
        assert await travel.row() == ("EXPIRED", "ACTIVE_TIMEOUT", HOUR)
