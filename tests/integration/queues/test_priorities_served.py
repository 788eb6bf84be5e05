"""HIGH, NORMAL and LOW in one queue, with `milepost serve` as a user runs it; the ledger is the witness."""

from __future__ import annotations

import pytest
from milepost import Priority

from tests.support import servers
from tests.support.apps.queues_service import job
from tests.support.queues import Shop, running, shop
from tests.support.waiting import until

MANY = 60


async def test_high_begins_at_once_in_what_is_reserved_while_low_has_all_it_may(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it:
        lows = [f"low-{n}" for n in range(MANY)]
        for name in lows:
            await it.start(job, name, priority=Priority.LOW, held=True)
        async with running(it.process(MILEPOST_STEP_CONCURRENCY=3)):
            await it.begun("low-%", 2)
            await it.start(job, "high", priority=Priority.HIGH)
            await it.has("high", "second done")
            assert len(await it.effects("low-%")) == 2, "two of three slots, and nothing of LOW has ended"
            await it.go(*lows)
            await it.all_are("SUCCEEDED")
        topics = await it.pool.fetch(
            "SELECT DISTINCT topic FROM milepost.outbox WHERE type = 'milepost.work'"
        )
        assert {row["topic"] for row in topics} == {
            f"{it.prefix}.work.default.high",
            f"{it.prefix}.work.default.low",
        }


async def go_until_soon(it: Shop) -> set[str]:
    """Let one run of LOW after the other go on, each when it has the slot, until "soon" has it; returns which."""
    before: set[str] = set()

    async def another() -> bool:
        return bool({run for run, _ in await it.effects()} - before)

    while not await it.effects("soon"):
        await until(another, within=30, what="another one to have the slot")
        held = {run for run, _ in await it.effects("low-%")} - before
        before |= held
        await it.go(*held)
    return before


@pytest.mark.parametrize("priority", [Priority.HIGH, Priority.NORMAL])
async def test_the_slot_that_frees_goes_to_the_higher_one_and_not_to_the_next_step_of_low(
    database_url: str, kafka_server: servers.MessageServer, priority: Priority
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it:
        lows = [f"low-{n}" for n in range(MANY)]
        for name in lows:
            await it.start(job, name, priority=Priority.LOW, held=True)
        async with running(it.process(MILEPOST_STEP_CONCURRENCY=1)):
            await it.begun("low-%", 1)
            await it.start(job, "soon", priority=priority)
            suffix = ".high" if priority is Priority.HIGH else ""
            await it.sent(f"{it.prefix}.work.default{suffix}")
            gone = await go_until_soon(it)
            await it.go(*set(lows).difference(gone))
            await it.all_are("SUCCEEDED")
        told = await it.effects()
        place = told.index(("soon", "first"))
        # The worker may take a moment to read what has just been sent: two steps of LOW, not the 119 that are left.
        assert place <= 6, told[:10]
        assert told[place : place + 4] == [
            ("soon", w) for w in ("first", "first done", "second", "second done")
        ]
