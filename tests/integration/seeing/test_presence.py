"""Who reads for a consumer says so; who is killed is missed, and only as long as it matters."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import asyncpg
from milepost.consumers.presence import Presence
from milepost.recovery.observing import look
from milepost.streams.lifecycle import Stop

from tests.support.drifting import IDS
from tests.support.engine import Rig, rig
from tests.support.waiting import until

BACK = "UPDATE milepost.reader SET seen_at = seen_at - $1::interval WHERE name = $2"


def presence(it: Rig, name: str) -> Presence:
    return Presence(it.database.pool, IDS, consumers=["billing"], service="rig", process=name)


async def missed(it: Rig) -> str:
    """Which reader is missed; '' when none is."""
    async with it.database.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        (age,) = [one for one in (await look(connection)).ages if one.what == "consumer"]
    return age.first


async def test_a_reader_that_was_killed_is_missed_until_another_one_has_its_place(database_url: str) -> None:
    async with rig(database_url) as it:
        pool, one, other = it.database.pool, presence(it, "one"), presence(it, "other")
        await asyncio.gather(one.turn(), other.turn())
        assert await missed(it) == ""
        await pool.execute(BACK, timedelta(seconds=10), "one")
        assert await missed(it) == "billing, read by one"
        await pool.execute(BACK, timedelta(seconds=30), "one")
        assert await missed(it) == "", "the other one has its partitions"
        await pool.execute(BACK, timedelta(minutes=5), "other")
        assert await missed(it) != "", "nobody reads"
        await one.turn(forget=True)
        assert await missed(it) == ""
        assert await it.value("SELECT count(*) FROM milepost.reader") == 1


async def test_a_reader_that_ends_in_order_is_not_missed(database_url: str) -> None:
    async with rig(database_url) as it:
        stop = Stop(it.service.clock, timedelta(seconds=5))
        task = asyncio.create_task(presence(it, "one").run(stop))

        async def heard() -> bool:
            return bool(await it.value("SELECT count(*) FROM milepost.reader"))

        await until(heard, what="the reader")
        stop.ask()
        await task
        assert not await heard()
