"""What a run is begun with: its input whatever it is, and the time at which it was its turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from milepost import Context, Repeat, Saga
from pydantic import BaseModel, RootModel

from tests.support.engine import rig
from tests.support.waiting import until


class Order(BaseModel):
    id: str


class Nothing(RootModel[None]):
    root: None = None


async def test_a_run_may_be_begun_with_nothing(database_url: str) -> None:
    saga = Saga("daily", version=1, input=Nothing, key=lambda _: "today")

    @saga.step(repeat=Repeat.SAFE)
    async def only(ctx: Context[Nothing]) -> None: ...

    saga.flow(only)
    async with rig(database_url, saga) as it:
        first, again = await it.start(saga, Nothing()), await it.start(saga, Nothing())
        assert first.id == again.id
        assert await it.value("SELECT input::text FROM milepost.run WHERE id = $1", first.id) == "null"


@pytest.mark.parametrize("what", ["key", "lock", "fingerprint"])
async def test_a_start_that_had_to_wait_for_another_begins_when_it_goes_on(
    database_url: str, what: str
) -> None:
    more: dict[str, Any] = {}
    if what == "lock":
        more = {"lock": lambda _: "one at a time"}
    if what == "fingerprint":
        more = {"fingerprint": lambda _: {"all": "alike"}}
    saga = Saga("later", version=1, input=Order, key=lambda order: order.id, **more)
    saga.flow(saga.timer("hour", timedelta(hours=1)))
    async with (
        rig(database_url, saga) as it,
        it.database.pool.acquire() as one,
        it.database.pool.acquire() as two,
    ):
        faster = one.transaction()
        await faster.start()
        await it.service.start(one, saga, Order(id="a"))

        async def slower() -> None:
            async with two.transaction():
                await it.service.start(two, saga, Order(id="a" if what == "key" else "b"))

        start = asyncio.create_task(slower())

        async def waits() -> bool:
            return bool(
                await it.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
                    two.get_server_pid(),
                )
            )

        await until(waits, what="the start that waits")
        before = await it.value("SELECT milepost.clock()")
        await faster.rollback()
        await asyncio.wait_for(start, 10)
        row = await it.row("SELECT since, wake_at FROM milepost.step")
        assert row["since"] >= before
        assert row["wake_at"] >= before + timedelta(hours=1)


async def test_a_run_that_nobody_takes_up_is_looked_at_when_its_active_time_is_over(
    database_url: str,
) -> None:
    saga = Saga(
        "brief", version=1, input=Order, key=lambda order: order.id, active_timeout=timedelta(minutes=5)
    )

    @saga.step(repeat=Repeat.SAFE, attempt_timeout=timedelta(seconds=5))
    async def only(ctx: Context[Order]) -> None: ...

    saga.flow(only)
    async with rig(database_url, saga) as it:
        run = (await it.start(saga, Order(id="a"))).id
        row = await it.row("SELECT wake_at, active_since FROM milepost.run WHERE id = $1", run)
        assert row["wake_at"] == row["active_since"] + timedelta(minutes=5)
