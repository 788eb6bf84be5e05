"""Letters that come a second time, letters of replays, and redrives beside slow ones."""

from __future__ import annotations

import asyncio
from typing import Any

from milepost.inbox.redrive import Redriver
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database

from tests.support.inbox import IDS, Effects, consumer_of, intake_of, nothing_published, running
from tests.support.letters import ONCE, Broken, holds, ignore, keyed, redrive, states
from tests.support.waiting import until


async def test_a_letter_that_was_settled_holds_nothing_when_its_record_comes_again(
    database: Database, effects: Effects
) -> None:
    """Its inbox row was purged meanwhile, the letter was not, and the group was reset to the earliest."""
    consumer = consumer_of("books", "t", effects.apply, hold_key=True, retry=ONCE)
    poison = keyed(0, b"k", body=[])
    await intake_of(consumer, database).handle([poison])
    await ignore(database, 1)
    assert await holds(database) == []
    await database.pool.execute("DELETE FROM milepost.inbox")
    await intake_of(consumer, database).handle([poison])
    assert await states(database) == [("IGNORED", "INVALID_BODY")]
    assert await holds(database) == [], "nobody could ever release it"
    await intake_of(consumer, database).handle([keyed(1, b"k")])
    assert await effects.orders() == ["o-1"]


async def test_a_redrive_that_takes_long_holds_up_no_other_consumers(
    database: Database, effects: Effects
) -> None:
    broken, go = Broken(effects, {"o-0", "o-1"}), asyncio.Event()

    async def slow(event: Any, tx: Any) -> None:
        if not broken.orders:
            await go.wait()
        await broken.apply(event, tx)

    first = consumer_of("a-first", "t", slow, retry=ONCE)
    second = consumer_of("b-second", "t", broken.apply, retry=ONCE)
    await intake_of(first, database).handle([keyed(0, b"k")])
    await intake_of(second, database).handle([keyed(1, b"k")])
    broken.orders.clear()
    for n in (1, 2):
        await redrive(database, n)
    redriver = Redriver(
        [first, second], database, nothing_published, clock=SystemClock(), ids=IDS, name="redrive"
    )
    async with running(redriver):

        async def done() -> bool:
            return [status for status, _ in await states(database)] == ["RETRY_PENDING", "RESOLVED"]

        try:
            await until(done, within=15, what="the second consumer's letter")
        finally:
            go.set()
        await until(
            lambda: effects.value("SELECT count(*) = 2 FROM milepost.dead_letter WHERE status = 'RESOLVED'"),
            within=15,
        )
    assert redriver.counts.resolved == 2
