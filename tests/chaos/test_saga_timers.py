"""Scenario 33: timers that became due while everything was down fire once each, at a bounded rate."""

from __future__ import annotations

import os

from milepost.consumers.waker import BATCH

from tests.support.apps.ledger import parcel
from tests.support.apps.ledger_stage import staged
from tests.support.process import served
from tests.support.waiting import until

WAITING = int(os.environ.get("MILEPOST_TEST_WAITS", "120"))
HALF = ("relay,orchestrator,waker,upkeep", "worker,compensator,signals,consumers")
UNDONE = ["pay", "send", "call back", "repay"]


async def test_timers_due_during_downtime_fire_once_each(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        # Nothing is due for an hour; the clock is put forward while nobody runs. Messages are announced again only
        # after half a minute, so that each repeat would be seen.
        env = stage.env(LEDGER_WAIT=3600, MILEPOST_NUDGE="30s")
        runs = [await stage.start(parcel, f"p-{n}") for n in range(WAITING)]
        async with served(env, *HALF) as processes:
            waiting = "SELECT count(*) = $1 FROM milepost.step WHERE kind = 'WAIT' AND state = 'WAITING'"
            await until(
                lambda: stage.pool.fetchval(waiting, WAITING),
                within=60 + WAITING / 10,
                what="all runs to wait",
            )
            for process in processes:
                await process.kill()
        await stage.pool.execute(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
            "$$ SELECT clock_timestamp() + interval '2 hours' $$"
        )
        async with served(env, *HALF):
            ended = await stage.resting(runs, within=60 + WAITING / 5)
        assert ended == {"COMPENSATED": WAITING}
        for run in runs:
            assert await stage.effects(run) == UNDONE, await stage.story(run)
        once = "SELECT count(*) FROM milepost.history WHERE event = 'wait.timed_out' GROUP BY run_id"
        assert [row["count"] for row in await stage.pool.fetch(once)] == [1] * WAITING
        per_timer = (
            "SELECT count(*) FROM milepost.outbox WHERE type = 'milepost.timer' "
            "AND convert_from(payload, 'UTF8')::jsonb ->> 'step' = 'arrived'"
        )
        assert await stage.pool.fetchval(per_timer) == WAITING, "one message for each timer"
        # At a bounded rate: a tick takes so many steps and so many runs.
        per_tick = (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM milepost.outbox WHERE type = 'milepost.timer' "
            "GROUP BY xid) AS ticks"
        )
        assert await stage.pool.fetchval(per_tick) <= 2 * BATCH
