"""Each role in a process of its own; two workers share the load; a standby relay takes over."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from tests.support.apps.ledger import parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import served
from tests.support.waiting import until

ROLES = (
    "relay",
    "orchestrator",
    "worker",
    "compensator",
    "signals",
    "consumers",
    "waker",
    "reconciler",
    "upkeep",
)


async def test_every_role_in_a_process_of_its_own_carries_a_parcel_there_and_back(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        async with served(stage.env(LEDGER_WAIT=10), *ROLES, ready=90):
            there = [await stage.start(parcel, f"there-{n}") for n in range(3)]
            back = [await stage.start(parcel, f"back-{n}") for n in range(3)]
            for n in range(3):
                await stage.deliver(f"there-{n}")
            assert await stage.resting(there + back, within=90) == {"SUCCEEDED": 3, "COMPENSATED": 3}
            noted = "SELECT count(*) >= 3 FROM effect WHERE what = 'noted'"
            await until(lambda: stage.pool.fetchval(noted), within=30, what="the consumer to note deliveries")
        for run in there:
            assert await stage.effects(run) == ["pay", "send", "close"], await stage.story(run)
        for run in back:
            assert await stage.effects(run) == ["pay", "send", "call back", "repay"], await stage.story(run)


async def callers(stage: Stage) -> dict[int, int]:
    """Return how many calls each process made."""
    rows = await stage.pool.fetch("SELECT pid, count(*) AS n FROM call GROUP BY pid")
    return {row["pid"]: row["n"] for row in rows}


async def test_two_workers_share_the_load(database_url: str, kafka: str, topic_prefix: str) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        rest = "relay,orchestrator,waker"
        async with served(stage.env(), rest, "worker", "worker") as (_, one, other):
            runs = [await stage.start(safe, f"r-{n}") for n in range(120)]
            assert await stage.resting(runs, within=90) == {"SUCCEEDED": len(runs)}
            shares = await callers(stage)
            assert shares.keys() == {one.pid, other.pid}
            assert sum(shares.values()) == 2 * len(runs), "nothing is called twice"
            assert min(shares.values()) >= len(runs) // 5, shares


async def leader(stage: Stage) -> asyncpg.Record | None:
    """Return the lease of the relay that leads."""
    query = "SELECT owner, epoch FROM milepost.outbox_lease WHERE expires_at > milepost.clock()"
    found: asyncpg.Record | None = await stage.pool.fetchrow(query)
    return found


async def test_a_standby_relay_takes_over_when_the_leader_is_killed(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        env = stage.env()
        async with served(env, "orchestrator,worker,waker", "relay") as (_, first):
            await until(lambda: leader(stage), within=20, what="a relay to lead")
            before = await leader(stage)
            assert before is not None
            async with served(env, "relay") as (_standby,):
                assert await leader(stage) == before, "a standby does not take a lease that holds"
                await first.kill()
                runs: list[UUID] = [await stage.start(safe, f"r-{n}") for n in range(20)]
                # A lease of three seconds and a few more.
                ended = await stage.resting(runs, within=20)
                assert ended == {"SUCCEEDED": len(runs)}
                after = await leader(stage)
                assert after is not None
                assert after["owner"] != before["owner"]
                assert after["epoch"] > before["epoch"]
        for run in runs:
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
