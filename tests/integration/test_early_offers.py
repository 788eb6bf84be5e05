"""How much of a queue a process may have before others have heard of it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid4

from milepost import Context, Repeat, Saga
from milepost.schemas.messages import WorkMessage
from milepost.schemas.states import Priority
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.workers import worker_on

OTHER = """
INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, pins, expires_at, seen_at)
SELECT $1, service, 'other', roles, queues, definitions, pins, milepost.clock() + interval '1 hour', milepost.clock()
FROM milepost.worker LIMIT 1
"""


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int


async def test_a_process_alone_has_all_its_slots_and_one_beside_others_a_quarter(database_url: str) -> None:
    saga, go = Saga("long", version=1, input=Order, key=lambda o: o.id), asyncio.Event()

    @saga.step(repeat=Repeat.NEVER)
    async def charge(ctx: Context[Order]) -> Number:
        await go.wait()
        return Number(value=2)

    saga.flow(charge)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service, slots=8) as hand:
        runs = [(await it.start(saga, Order(id=str(n)))).id for n in range(12)]

        async def offered(count: int) -> int:
            taken = 0
            for run in runs[:count]:
                message = WorkMessage(run=run, saga="long", definition=1, step="charge")
                if (claim := hand.worker.offer(message, Priority.NORMAL)) is not None:
                    taken += await claim
            del runs[:count]
            return taken

        assert not hand.lease.alone, "nobody has looked yet"
        assert await offered(3) == 2
        assert await hand.lease.renew() and hand.lease.alone
        newer = WorkMessage(run=runs[0], saga="long", definition=2, step="charge")
        assert hand.worker.offer(newer, Priority.NORMAL) is None, "another process may have that version"
        assert await offered(4) == 4
        other = uuid4()
        async with it.engine.pool.acquire() as connection:
            await connection.execute(OTHER, other)
            assert await hand.lease.renew() and not hand.lease.alone
            assert await offered(1) == 0, "six steps run here, of eight slots"
            await connection.execute(
                "UPDATE milepost.worker SET expires_at = milepost.clock() WHERE id = $1", other
            )
            assert await hand.lease.renew() and hand.lease.alone
        assert await offered(4) == 2, "no more than there are slots"
        go.set()


async def test_a_step_that_a_limit_puts_off_has_one_appointment_although_its_record_follows(
    database_url: str,
) -> None:
    """With another one for each record, only every second one would be kept, and the limit half used."""
    saga = Saga("limited", version=1, input=Order, key=lambda o: o.id)

    @saga.step(repeat=Repeat.SAFE, limits="bank")
    async def charge(ctx: Context[Order]) -> None: ...

    saga.flow(charge)
    async with rig(database_url, saga) as it:
        it.service.limit("bank", calls=1, per=timedelta(hours=1))
        async with worker_on(database_url, it.service, slots=8) as hand:
            runs = [(await it.start(saga, Order(id=str(n)))).id for n in range(4)]

            async def appointment(run: UUID) -> datetime | None:
                found: datetime | None = await it.value(
                    "SELECT limited_until FROM milepost.step WHERE run_id = $1", run
                )
                return found

            for run in runs:
                message = WorkMessage(run=run, saga="limited", definition=1, step="charge")
                claim = hand.worker.offer(message, Priority.NORMAL)
                assert claim is not None
                offered, until = await claim, await appointment(run)
                assert offered == (run == runs[0]) == (until is None)
                await hand.worker.take(message)
                assert await appointment(run) == until
            times = [await appointment(run) for run in runs[1:]]
            apart = {later - one for one, later in pairwise(times) if one and later}
            assert max(apart) < timedelta(hours=2), "an appointment for each, one after the other"
            events = [await it.history(run) for run in runs[1:]]
            assert events == [["run.started", "step.rate_limited"]] * 3
