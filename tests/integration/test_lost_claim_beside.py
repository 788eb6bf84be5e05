"""The answer to the claim of one branch is lost while another branch of the same run, in the same process, ends."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
from milepost import Context, Repeat, Saga, all_of
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.proxy import proxied
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on


class Order(BaseModel):
    id: str


async def take(hand: Hand, run: UUID, step: str) -> bool:
    """Announce a step once; False when the database did not answer."""
    try:
        await hand.take(run, "beside", step)
    except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
        return False
    return True


async def test_what_the_other_branch_did_is_stored(database_url: str) -> None:
    calls: list[str] = []
    go = asyncio.Event()
    saga = Saga("beside", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.NEVER)
    async def left(ctx: Context[Order]) -> None:
        calls.append("left")
        await go.wait()

    @saga.step(repeat=Repeat.NEVER)
    async def right(ctx: Context[Order]) -> None:
        calls.append("right")

    saga.flow(all_of(left, right))
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            assert await take(hand, run.id, "left")
            proxy.lose(b"step.started")
            assert not await take(hand, run.id, "right")
            assert (await it.states(run.id))["right"] == "RUNNING"
            go.set()

            async def stored() -> bool:
                return (await it.states(run.id))["left"] == "SUCCEEDED"

            await until(stored, within=10, what="left's result")
            assert await take(hand, run.id, "right")

            async def ended() -> bool:
                return (await it.states(run.id))[""] == "SUCCEEDED"

            await until(ended, within=10, what="the run's end")
        assert sorted(calls) == ["left", "right"]
        assert "step.late_result" not in await it.history(run.id)
