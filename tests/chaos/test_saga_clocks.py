"""Requirement F17: machines whose clocks are ten minutes off, ahead and behind; what is due the database's clock says.

The clocks are wrong as the system tells them (libfaketime), not only as Milepost asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from milepost import Milepost, RunRef, Saga
from milepost.outbox.log import outbox_state

from tests.support.apps import clocks_service as app
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.clocks import off_by, skewed
from tests.support.outbox import connected
from tests.support.process import served

OFF = timedelta(minutes=10)
LEASE = timedelta(seconds=3)
#: Steps that a process runs at once.
SLOTS = 8
#: What comes between that something is due and that it is done, on a machine that is busy.
LATE = timedelta(seconds=20)
STAMPS = (
    "SELECT min(at), max(at) FROM (SELECT at FROM milepost.history UNION ALL SELECT created_at FROM milepost.run"
    " UNION ALL SELECT finished_at FROM milepost.run UNION ALL SELECT since FROM milepost.step"
    " UNION ALL SELECT started_at FROM milepost.step UNION ALL SELECT finished_at FROM milepost.step"
    " UNION ALL SELECT created_at FROM milepost.outbox) AS stamps"
)


@dataclass
class Clocks:
    """The service of two machines whose clocks are wrong.

    Attributes:
        env: Environments of the one that is ahead and the one that is behind.
        began: When the test began, by the database's clock.
    """

    stage: Stage
    env: list[dict[str, str]]
    began: datetime

    async def start(self, saga: Saga[Any], name: str, due: datetime | None = None) -> RunRef:
        service: Milepost = self.stage.service
        given = app.Dated(name=name, due=due or self.began + timedelta(days=1))
        async with self.stage.pool.acquire() as connection, connection.transaction():
            return await service.start(connection, saga, given)

    async def now(self) -> datetime:
        found: datetime = await self.stage.pool.fetchval("SELECT clock_timestamp()")
        return found

    async def ended(self, run: RunRef, state: str, *effects: str) -> asyncpg.Record:
        """Look at a run that is over; returns its row."""
        story = await self.stage.story(run.id)
        assert await self.stage.state(run.id) == state, story
        assert await self.stage.effects(run.id) == list(effects), story
        row: asyncpg.Record | None = await self.stage.pool.fetchrow(
            "SELECT *, finished_at - created_at AS took FROM milepost.run WHERE id = $1", run.id
        )
        assert row is not None
        return row

    async def lasted(self, run: RunRef, name: str) -> timedelta:
        """Return how long after the end of the step before it a row has ended."""
        before, row = await self.stage.step(run.id, "before"), await self.stage.step(run.id, name)
        took: timedelta = row["finished_at"] - before["finished_at"]
        return took


async def wrong(stage: Stage) -> Clocks:
    """Return the service of two machines, of which none runs yet."""
    base = stage.env(
        MILEPOST_LEASE=f"{LEASE.total_seconds():.0f}s",
        MILEPOST_APP="tests.support.apps.clocks_service:service",
        MILEPOST_STEP_CONCURRENCY=SLOTS,
    )
    env = [{**base, **skewed(OFF)}, {**base, **skewed(-OFF)}]
    began = await stage.pool.fetchval("SELECT clock_timestamp()")
    return Clocks(stage, env, began)


def in_time(took: timedelta, after: timedelta = app.SHORT) -> bool:
    """Whether something came neither before its time nor long after it."""
    return after <= took < after + LATE


async def leases(stage: Stage) -> list[timedelta]:
    """Return how long the lease of each process lasts yet."""
    rows = await stage.pool.fetch("SELECT expires_at - clock_timestamp() AS left FROM milepost.worker")
    return [row["left"] for row in rows]


async def check_times(clocks: Clocks, runs: dict[str, RunRef], due: datetime) -> None:
    """Nothing came before its time, by any of the two clocks or by both, and nothing long after it."""
    row = await clocks.ended(runs["lasting"], "SUCCEEDED", "before", "after")
    assert in_time(await clocks.lasted(runs["lasting"], "pause")), row
    await clocks.ended(runs["instant"], "SUCCEEDED", "before", "after")
    fired = (await clocks.stage.step(runs["instant"].id, "pause"))["finished_at"]
    assert due <= fired < due + LATE
    await clocks.ended(runs["came"], "SUCCEEDED", "before", "after")
    await clocks.ended(runs["waiting"], "COMPENSATED", "before", "undo before")
    assert in_time(await clocks.lasted(runs["waiting"], "came"))
    row = await clocks.ended(runs["dated"], "EXPIRED", "before", "undo before")
    assert due <= row["finished_at"] < due + LATE
    row = await clocks.ended(runs["active"], "EXPIRED")
    assert in_time(row["took"]), row["took"]
    await clocks.ended(runs["asked"], "COMPENSATED", "before", "undo before")
    assert in_time(await clocks.lasted(runs["asked"], "ok"))
    await clocks.ended(runs["hanging"], "FAILED", "hangs")
    hung = await clocks.stage.step(runs["hanging"].id, "hangs")
    assert in_time(hung["finished_at"] - hung["started_at"])


async def check_long(clocks: Clocks, runs: list[RunRef]) -> None:
    """No step was taken from a living worker, whether it says that it lives or not."""
    for run in runs:
        await clocks.ended(run, "SUCCEEDED", "long", "long")
        history = await clocks.stage.history(run.id)
        assert (history.count("step.started"), history.count("step.completed")) == (2, 2), history
        for name in ("quiet", "beating"):
            row = await clocks.stage.step(run.id, name)
            assert (row["attempt"], row["fence"]) == (1, 1)
            assert app.LONG - timedelta(seconds=1) <= row["finished_at"] - row["started_at"] < app.LONG + LATE


async def check_stamps(clocks: Clocks) -> None:
    """What is stored is the database's time, whichever process wrote it."""
    row = await clocks.stage.pool.fetchrow(STAMPS)
    assert row is not None and clocks.began <= row[0] <= row[1] <= await clocks.now()


async def resting(clocks: Clocks, runs: list[RunRef], within: float = 90) -> None:
    await clocks.stage.resting([run.id for run in runs], within=within)


async def test_machines_whose_clocks_are_ten_minutes_off(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix, *app.SAGAS) as stage:
        clocks = await wrong(stage)
        for env, off in zip(clocks.env, (OFF, -OFF), strict=True):
            assert abs(off_by(env) - off) < timedelta(seconds=5), "the clocks are wrong"
        async with served(clocks.env[0]) as (ahead,), served(clocks.env[1]) as (behind,):
            due = await clocks.now() + app.SHORT
            kinds = {"lasting", "waiting", "active", "asked", "hanging"}
            runs = {
                saga.name: await clocks.start(saga, saga.name) for saga in app.SAGAS if saga.name in kinds
            }
            runs["instant"] = await clocks.start(app.instant, "instant", due)
            runs["dated"] = await clocks.start(app.dated, "dated", due)
            runs["came"] = await clocks.start(app.waiting, "came")
            # More than one process has slots for, whoever hears of them first.
            long = [await clocks.start(app.long, f"long-{n}") for n in range(SLOTS + 4)]
            await stage.step_is(runs["came"].id, "came", "WAITING")
            await stage.deliver("came", of="clocks.came", topic="came")
            assert all(-LEASE < left <= LEASE for left in await leases(stage)), await leases(stage)
            await resting(clocks, [*runs.values(), *long])
            assert await relays(stage) == 1, "the relay's lease was not taken from a living one"
            await check_times(clocks, runs, due)
            await check_long(clocks, long)
            pids = {
                row["pid"]
                for row in await stage.pool.fetch("SELECT DISTINCT pid FROM call WHERE what = 'long'")
            }
            assert pids == {ahead.pid, behind.pid}, "both had long steps"
            await stage.fault("dying", "dies", "before", "kill")
            dying = await clocks.start(app.dying, "dying")
            await resting(clocks, [dying])
            assert ahead.ended != behind.ended, "one of them is gone, and the other one did what it had"
            await clocks.ended(dying, "SUCCEEDED", "dies")
            assert (await stage.step(dying.id, "dies"))["attempt"] == 2
        await check_stamps(clocks)


async def relays(stage: Stage) -> int:
    """Return how many relays have had the lease, one after the other."""
    async with connected(stage.url) as (connection,):
        return (await outbox_state(connection)).epoch
