"""A worker whose slots are all taken by long steps is at work, not stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from milepost import Context, Repeat, Saga
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock, SystemRandomness
from milepost.streams.kafka_poll import Partition
from milepost.streams.reader_lane import Lane
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.inbox import record
from tests.support.waiting import until
from tests.support.workers import worker_on


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int


class Somewhere:
    """A partition that is read from its beginning."""

    async def committed(self, partition: Partition) -> int | None:
        return None

    async def bounds(self, partition: Partition) -> tuple[int, int]:
        return 0, 2

    async def sent_since(self, partition: Partition, instant: datetime) -> int | None:
        return None

    async def seek(self, partition: Partition, offset: int | None) -> None: ...

    def pause(self, partition: Partition) -> None: ...

    def resume(self, partition: Partition) -> None: ...


async def test_a_message_that_waits_for_a_slot_gets_on_while_steps_run(database_url: str) -> None:
    saga, go, clock = Saga("long", version=1, input=Order, key=lambda o: o.id), asyncio.Event(), SystemClock()

    @saga.step(repeat=Repeat.NEVER)
    async def charge(ctx: Context[Order]) -> Number:
        await go.wait()
        return Number(value=2)

    saga.flow(charge)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service, slots=1) as hand:
        runs = [await it.start(saga, Order(id=name)) for name in ("a", "b")]

        async def handle(records: Sequence[Record]) -> None:
            for found in records:
                await hand.take(runs[found.offset].id, "long", "charge")

        lane = Lane(
            ("work", 0),
            place=Somewhere(),
            handle=handle,
            positions=None,
            past=None,
            max_records=2,
            done=lambda lane, offset: None,
            grumble=lambda place, error: None,
            clock=clock,
            dice=SystemRandomness(),
            before=None,
        )
        await until(lambda: lane.placed)
        lane.offer([record(0)])
        lane.offer([record(1)])
        began = clock.monotonic()
        await until(lambda: hand.worker.busy == 1)
        await until(lambda: clock.monotonic() - began > 3, within=10)
        assert lane.busy_since is not None, "the second message waits"
        assert clock.monotonic() - lane.busy_since < 2.5
        go.set()
        await until(lambda: lane.busy_since is None and hand.idle(), what="both steps")
        lane.close()
        await asyncio.wait({lane.task})
