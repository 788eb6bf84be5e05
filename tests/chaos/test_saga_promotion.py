"""Interleaving 7: a standby takes the primary's place while runs are under way, and may lack what was committed last.

The outside world has a database of its own: it remembers what the promoted one has forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
from milepost.streams.migrate import migrate

from tests.support.apps.ledger import ask, booked, chain, never, parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.apps.ledger_world import TABLES
from tests.support.outbox import make_topics
from tests.support.process import served
from tests.support.standby import Pair, pair
from tests.support.waiting import until

REST = "relay,orchestrator,waker,upkeep,signals,consumers"
CALLERS = "worker,compensator"
SETTLED = "SELECT decision FROM milepost.reconciliation WHERE run_id = $1 AND decision <> 'NONE' ORDER BY at"


@asynccontextmanager
async def moving(both: Pair, kafka: str, prefix: str, world: str) -> AsyncIterator[Stage]:
    """The ledger's service on a database that can be moved, and its world on one that cannot."""
    await asyncio.to_thread(both.primary.create_database, "ledger")
    url = both.url("ledger")
    await migrate(url)
    async with (
        asyncpg.create_pool(world, min_size=1, max_size=4) as pool,
        staged(url, kafka, prefix) as stage,
    ):
        await pool.execute(TABLES)
        stage.world = pool
        yield stage


def env(stage: Stage, world: str) -> dict[str, str]:
    return stage.env(LEDGER_WORLD=world, LEDGER_WAIT=90, LEDGER_SETTLE=1, MILEPOST_STEP_CONCURRENCY=16)


async def settled(stage: Stage, run: UUID) -> list[str]:
    """Return what probes have settled."""
    return [row["decision"] for row in await stage.pool.fetch(SETTLED, run)]


async def noted(stage: Stage, name: str) -> int:
    """Return how often the consumer has noted the delivery of a parcel, in the database that moved."""
    query = "SELECT count(*) FROM effect WHERE what = 'noted' AND starts_with(key, $1)"
    return int(await stage.pool.fetchval(query, f"{name}:"))


async def test_a_standby_that_has_everything_changes_no_outcome(
    empty_database_url: str, kafka: str, topic_prefix: str
) -> None:
    """Nothing is answered that the standby does not have; the runs go on where they were."""
    async with (
        pair(synchronous=True) as both,
        moving(both, kafka, topic_prefix, empty_database_url) as stage,
        served(env(stage, empty_database_url), REST, CALLERS) as processes,
    ):
        others = [await stage.start(saga, f"o-{n}") for n in range(12) for saga in (safe, ask, chain)]
        nobodies = [await stage.start(never, f"n-{n}") for n in range(6)]
        some = "SELECT count(*) > 12 FROM effect"
        await until(lambda: stage.outside.fetchval(some), within=60, what="the runs to be under way")
        await both.fail_over()
        await stage.resting([*others, *nobodies], within=120)
        assert not any(process.ended for process in processes), "a process ended"
        for run in others:
            wanted = ["act", "next"] if len(await stage.effects(run)) == 2 else list(WORDS)
            assert await stage.effects(run) == wanted, await stage.story(run)
            assert await stage.state(run) == "SUCCEEDED", await stage.story(run)
        for run in nobodies:
            assert await stage.calls(run, "act") <= 1, await stage.story(run)
            done = {"SUCCEEDED": ["act", "next"], "MANUAL_REQUIRED": await stage.effects(run)}
            assert await stage.effects(run) == done[await stage.state(run)], await stage.story(run)


async def test_a_standby_that_lacks_the_last_commits(
    empty_database_url: str, kafka: str, topic_prefix: str
) -> None:
    """Claims, results, effects, signals and starts are forgotten; nothing happens twice that must not."""
    await make_topics(kafka, f"{topic_prefix}-deliveries", partitions=1)
    async with (
        pair(synchronous=False) as both,
        moving(both, kafka, topic_prefix, empty_database_url) as stage,
        served(env(stage, empty_database_url), REST) as (rest,),
    ):
        await stage.deliver("before")
        await until(lambda: noted(stage, "before"), within=30, what="the first delivery to be noted")
        runs = {name: await stage.start(saga, name) for name, saga in BEFORE.items()}
        await both.caught_up()
        both.link.lead_to(0)
        for name in HELD:
            await stage.fault(name, "act", "after", "hold")
        async with served(env(stage, empty_database_url), CALLERS) as (callers,):
            lost = await forgotten(stage, runs)
            await both.fail_over()
            find = "SELECT count(*) FROM milepost.run WHERE id = $1"
            assert await stage.pool.fetchval(find, lost) == 0
            for name in HELD:
                await stage.release(name, "act", "after")
            met = "SELECT count(*) = 2 FROM milepost.timeline"
            await until(lambda: stage.pool.fetchval(met), within=30, what="the new timeline to be seen")
            again, new = await stage.start(safe, "lost"), await stage.start(ask, "new")
            await stage.deliver("after")
            ended = await stage.resting([*runs.values(), again, new], within=180)
            assert not rest.ended and not callers.ended, "a process ended"
            await check(stage, runs, again, new)
            assert ended == {"SUCCEEDED": len(runs) + 2 - 1, "MANUAL_REQUIRED": 1}


async def forgotten(stage: Stage, runs: dict[str, UUID]) -> UUID:
    """Do what the standby will not know of: work of every kind, the delivery of a parcel, and a run as a whole."""
    lost = await stage.start(safe, "lost")
    for name in HELD:
        await stage.reached(name, "act", "after")
    await stage.resting([*(run for name, run in runs.items() if name in FINISHED), lost], within=60)
    await stage.step_is(runs["parcel"], "arrived", "WAITING")
    await stage.deliver("parcel")
    await stage.resting([runs["parcel"]], within=60)
    await until(lambda: noted(stage, "parcel"), within=30, what="the delivery to be noted")
    return lost


#: Runs that the standby knows of, of which no step has begun.
BEFORE = {
    "asked": ask,
    "asked-held": ask,
    "safe": safe,
    "safe-held": safe,
    "booked": booked,
    "never": never,
    "parcel": parcel,
}
FINISHED = {"asked", "safe", "booked", "never"}
#: Calls that are under way when the database moves.
HELD = ("asked-held", "safe-held")
WORDS = ("one", "two", "three", "four", "five")


async def check(stage: Stage, runs: dict[str, UUID], again: UUID, new: UUID) -> None:
    """Each effect once, although its record was lost."""
    for name in ("asked", "asked-held", "safe", "safe-held"):
        assert await stage.effects(runs[name]) == ["act", "next"], await stage.story(runs[name])
    for name in ("asked", "asked-held"):
        assert await stage.calls(runs[name], "act") == 1, await stage.story(runs[name])
        assert await settled(stage, runs[name]) == ["MARK_AS_SUCCESS"], await stage.story(runs[name])
    assert await stage.calls(runs["never"], "act") == 1, await stage.story(runs["never"])
    step = await stage.step(runs["never"], "never_act")
    assert (step["state"], step["code"], step["doubt"]) == ("MANUAL_REQUIRED", "OUTCOME_UNKNOWN", True)
    # What a transactional step did went with its record, and came again with it; what came after is known by its key.
    query = "SELECT what FROM effect WHERE starts_with(key, $1)"
    assert [row["what"] for row in await stage.pool.fetch(query, f"{runs['booked']}:")] == ["act"]
    assert await stage.effects(runs["booked"]) == ["next"]
    # The event was read again from where the database says, although the group's offset was past it.
    assert await stage.effects(runs["parcel"]) == ["pay", "send"], await stage.story(runs["parcel"])
    await until(lambda: noted(stage, "parcel"), within=60, what="the delivery to be noted again")
    assert await noted(stage, "parcel") == 1
    for run in (again, new):
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        assert await settled(stage, run) == [], "what was started since is not asked about"
