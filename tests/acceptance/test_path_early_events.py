"""Scenario 31: an event that comes before anybody waits for it is kept, and counts once."""

from __future__ import annotations

from functools import partial

from tests.support.apps.ledger import parcel
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import served
from tests.support.waiting import until


async def noted(stage: Stage, name: str) -> int:
    """Return how often the other consumer of the same topic has applied an event."""
    query = "SELECT count(*) FROM effect WHERE what = 'noted' AND starts_with(key, $1)"
    return int(await stage.pool.fetchval(query, f"{name}:"))


async def kept(stage: Stage, name: str) -> int:
    """Return how many signals are stored under a key."""
    return int(await stage.pool.fetchval("SELECT count(*) FROM milepost.signal WHERE key = $1", name))


async def test_events_before_the_run_between_retries_and_in_time_each_count_once(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage, served(stage.env(LEDGER_WAIT=60)):
        # Before the run exists: the same record twice, and another event of the same parcel.
        event = await stage.deliver("early", times=2)
        await stage.deliver("early", id=f"{event}-again")
        await until(lambda: kept(stage, "early"), within=60, what="the early event to be stored")
        await until(lambda: noted(stage, "early"), within=60, what="the other consumer")
        early = await stage.start(parcel, "early")

        # While the step before the wait is between its tries.
        await stage.fault("between", "send", "before", "raise", times=100_000)
        between = await stage.start(parcel, "between")
        await stage.step_is(between, "send", "RETRY_PENDING")
        await stage.deliver("between", times=2)
        await until(lambda: kept(stage, "between"), within=60, what="the event to be stored")
        assert (await stage.step(between, "send"))["state"] != "SUCCEEDED"
        await stage.release("between", "send", "before")

        # While the run waits.
        waiting = await stage.start(parcel, "waiting")
        await stage.step_is(waiting, "arrived", "WAITING")
        await stage.deliver("waiting", times=2)

        runs = [early, between, waiting]
        # The time-out is a minute: who ends before was resumed by the event.
        assert await stage.resting(runs, within=45) == {"SUCCEEDED": 3}
        for run, name in zip(runs, ("early", "between", "waiting"), strict=True):
            assert await stage.effects(run) == ["pay", "send", "close"], await stage.story(run)
            resumed = [event for event in await stage.history(run) if event == "run.resumed"]
            assert len(resumed) == 1, await stage.story(run)
            await until(partial(noted, stage, name), within=30, what=f"{name} to be noted")
        assert {name: await kept(stage, name) for name in ("early", "between", "waiting")} == {
            "early": 2,
            "between": 1,
            "waiting": 1,
        }
        assert {name: await noted(stage, name) for name in ("early", "between", "waiting")} == {
            "early": 2,
            "between": 1,
            "waiting": 1,
        }
        matched = "SELECT count(*) FROM milepost.signal WHERE run_id IS NOT NULL"
        assert await stage.pool.fetchval(matched) == 3, "each wait took one event"
