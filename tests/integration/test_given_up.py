"""Steps of a process that is gone are taken over as soon as its lease has ended, all at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from milepost import Context, Repeat, Saga
from milepost.consumers.waker import Waker
from milepost.sagas.facts import Claim
from milepost.schemas.ids import SystemClock
from milepost.streams.lifecycle import Stop
from pydantic import BaseModel

from tests.support.engine import Rig, rig, worker_id
from tests.support.waiting import until


class Order(BaseModel):
    id: str


def saga() -> Saga[Order]:
    made = Saga("gone", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE)
    async def call(ctx: Context[Order]) -> None: ...

    made.flow(call)
    return made


async def lease(it: Rig, ends_in: float) -> UUID:
    """Insert the lease of a process."""
    worker = worker_id()
    await it.value(
        "INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at)"
        " VALUES ($1, 'rig', 'w', '{}', '{}', '{}', milepost.clock() + $2::interval)",
        worker,
        timedelta(seconds=ends_in),
    )
    return worker


async def running(it: Rig) -> int:
    return int(await it.value("SELECT count(*) FROM milepost.step WHERE state = 'RUNNING'"))


async def test_it_does_not_wait_for_the_next_sweep(database_url: str) -> None:
    made = saga()
    async with rig(database_url, made) as it:
        run = await it.start(made, Order(id="o"))
        stop = Stop(SystemClock(), timedelta(seconds=1))
        waker = Waker(it.engine, push=timedelta(hours=1), sweep_every=timedelta(hours=1))
        role = asyncio.create_task(waker.run(stop))
        await until(lambda: waker.health().ok)
        worker = await lease(it, 2)
        await it.engine.change(run.id, Claim("call", worker))
        assert await running(it) == 1

        async def taken() -> bool:
            return await running(it) == 0

        await until(taken, within=8, what="the step to be taken from its worker")
        ended = await it.value("SELECT expires_at <= milepost.clock() FROM milepost.worker")
        assert ended, "not before the lease had ended"
        assert "step.retry_scheduled" in await it.history(run.id)
        stop.ask()
        await role


async def test_all_of_them_are_taken_together_and_one_that_cannot_be_keeps_none_back(
    database_url: str,
) -> None:
    made = saga()
    async with rig(database_url, made) as it:
        runs = [(await it.start(made, Order(id=f"o-{n}"))).id for n in range(20)]
        worker = await lease(it, -1)
        await asyncio.gather(*(it.engine.change(run, Claim("call", worker)) for run in runs))
        await it.value("ALTER TABLE milepost.step DROP CONSTRAINT step_kind_check")
        await it.value("UPDATE milepost.step SET kind = 'ODD' WHERE run_id = $1", runs[3])
        before = await it.value("SELECT max(xmin::text::bigint) FROM milepost.run")
        assert await it.waker.sweep() == 20
        assert await running(it) == 1
        assert not it.waker.health().ok and str(runs[3]) in it.waker.health().detail
        query = "SELECT count(DISTINCT xmin::text) FROM milepost.run WHERE xmin::text::bigint > $1"
        assert await it.value(query, before) == 1, "one transaction for all of them"
