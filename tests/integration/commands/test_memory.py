"""How long a participant remembers what it did."""

from __future__ import annotations

from datetime import timedelta

from milepost.consumers.retention import Retention
from milepost.schemas.ids import SystemClock
from milepost.streams.lifecycle import Stop

from tests.support.trucks import BookTruck, Participant, bench

AGE = "UPDATE milepost.barrier SET at = milepost.clock() - $2::interval WHERE run = $1"


async def test_operations_are_remembered_as_long_as_the_settings_say(database_url: str) -> None:
    async with bench(database_url, keep_participants=timedelta(days=90)) as at:
        intake = at.intake(Participant().consumer())
        for run, days in (("old", 91), ("young", 89)):
            await intake.handle([at.record(BookTruck(truck=run), run=run, step="s")])
            await at.database.pool.execute(AGE, run, timedelta(days=days))
        retention = Retention(at.database, every=timedelta(0))
        await retention.tidy(Stop(SystemClock(), timedelta(seconds=5)))
        assert retention.removed["participants"] == 1
        await intake.handle([at.record(BookTruck(truck=run), run=run, step="s") for run in ("old", "young")])
        assert await at.ledger() == [("do", "old"), ("do", "young"), ("do", "old")]
