"""Batches of signals side by side, and matches whose resume message is lost."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from uuid import UUID

import pytest
from milepost import Event, Saga, Then
from milepost.consumers.publishing import publish_in
from milepost.consumers.signals import signal_consumer
from milepost.inbox.intake import Intake
from milepost.inbox.signals import NUDGE, NewSignal, Stored, close_wait, store_signals
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.messages import TimerMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.inbox import headers

IDS = SystemIds()
STEP = "SELECT wake_at - milepost.clock() AS left, generation FROM milepost.step WHERE run_id = $1"


class Order(BaseModel):
    id: str


class Arrived(Event, type="batch.arrived", topic="arrivals", key="id", correlate="id"):
    id: str


def saga(*, timeout: timedelta = timedelta(days=14)) -> Saga[Order]:
    made = Saga("batched", version=1, input=Order, key=lambda order: order.id)
    made.flow(
        made.wait("arrived", Arrived, match=lambda v: v.input.id, timeout=timeout, on_timeout=Then.CANCEL)
    )
    return made


def signal(key: str) -> NewSignal:
    identity = IDS.new()
    return NewSignal(
        id=identity,
        tenant="",
        source="/carrier",
        event_id=str(identity),
        type="batch.arrived",
        key=key,
        payload=json.dumps({"id": key}),
    )


async def send(it: Rig, key: str) -> Stored:
    async with it.database.pool.acquire() as connection, connection.transaction():
        return await store_signals(connection, [signal(key)])


def record(partition: int, n: int, key: str) -> Record:
    value = json.dumps({"id": key}).encode()
    now = int(SystemClock().now().timestamp() * 1000)
    return Record("arrivals", partition, n, None, value, headers(IDS.new(), type="batch.arrived"), now)


def intake(it: Rig) -> Intake:
    return Intake(signal_consumer(it.service), it.database, publish_in, clock=SystemClock())


async def wakes(it: Rig, run: UUID) -> None:
    """The waker finds the run, and its message brings it on."""
    await it.clock(f"{NUDGE.total_seconds() + 1} seconds")
    assert await it.waker.tick() == 1
    (timer,) = [TimerMessage.model_validate(body) for body in await it.outgoing("milepost.timer")]
    await it.orchestrator.wake(timer)
    assert (await it.states(run))["arrived"] == "SUCCEEDED"


async def test_a_lost_resume_is_made_up_for_when_the_wait_came_first(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        run = await it.start(order, Order(id="o-1"))
        version = await it.value("SELECT version FROM milepost.run")
        assert len((await send(it, "o-1")).matched) == 1
        assert await it.value("SELECT version FROM milepost.run") == version
        await wakes(it, run.id)


async def test_a_lost_resume_is_made_up_for_when_the_signal_came_first(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        await send(it, "o-1")
        run = await it.start(order, Order(id="o-1"))
        assert (await it.states(run.id))["arrived"] == "WAITING"
        await wakes(it, run.id)


@pytest.mark.parametrize("signal_first", [True, False])
async def test_a_match_moves_no_deadline_back(database_url: str, signal_first: bool) -> None:
    order = saga(timeout=timedelta(seconds=20))
    async with rig(database_url, order) as it:
        if signal_first:
            await send(it, "o-1")
        run = await it.start(order, Order(id="o-1"))
        if not signal_first:
            await send(it, "o-1")
        assert await it.value("SELECT count(*) FROM milepost.wait WHERE state = 'MATCHED'") == 1
        assert (await it.row(STEP, run.id))["left"] < timedelta(seconds=21)


async def test_a_signal_and_a_change_of_its_run_never_wait_for_each_other(database_url: str) -> None:
    """The change holds run and step and wants the key; the signal holds the key and would want the step."""
    order = saga()
    async with rig(database_url, order) as it:
        run = await it.start(order, Order(id="o-1"))
        generation = (await it.row(STEP, run.id))["generation"]
        async with it.database.pool.acquire() as connection, connection.transaction():
            await connection.execute("UPDATE milepost.run SET version = version + 1 WHERE id = $1", run.id)
            await connection.execute("UPDATE milepost.step SET attempt = attempt WHERE run_id = $1", run.id)
            stored = await asyncio.wait_for(send(it, "o-1"), 10)
            assert len(stored.matched) == 1
            assert not await close_wait(connection, run.id, "arrived", "", generation), (
                "the signal was faster"
            )


async def test_two_batches_with_their_keys_in_opposite_order_do_not_deadlock(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        keys = [f"o-{n}" for n in range(60)]
        for key in keys[::4]:
            await it.start(order, Order(id=key))
        for offset in (0, 60):
            batches = [
                [record(partition, offset + n, key) for n, key in enumerate(given)]
                for partition, given in enumerate((keys, keys[::-1]))
            ]
            await asyncio.gather(*(intake(it).handle(batch) for batch in batches))
        assert await it.value("SELECT count(*) FROM milepost.wait WHERE state = 'MATCHED'") == len(keys[::4])
        assert await it.value("SELECT count(*) FROM milepost.signal") == 240


async def test_a_key_that_cannot_be_stored_is_parked_and_the_batch_goes_on(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        run = await it.start(order, Order(id="o-1"))
        await intake(it).handle([record(0, 0, "a\x00b"), record(0, 1, "o-1")])
        assert await it.value('SELECT array_agg("offset") FROM milepost.dead_letter') == [0]
        assert await it.value("SELECT run_id FROM milepost.signal") == run.id
