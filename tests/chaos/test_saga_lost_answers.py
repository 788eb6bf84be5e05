"""Answers of the database are lost at random while branches of many runs are claimed, finished and announced again."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from uuid import UUID

import pytest
from milepost import Context, Repeat, Saga, Step, all_of, sequence
from milepost.consumers.engine import DATABASE_ERRORS
from milepost.schemas.messages import WorkMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.proxy import Proxy, proxied
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on

RUNS, BRANCHES, LENGTH = 6, 3, 3
#: A claim, a finish, any transaction of several changes.
MARKERS = (b"step.started", b"step.completed", b"COMMIT;")
FAULTS = 12
SEEDS = 60 if os.environ.get("MILEPOST_CHAOS") == "long" else 4


class Order(BaseModel):
    id: str


class World:
    """Branches of steps that may be called once at most, and how often each was."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.calls = Counter[str]()

    def saga(self) -> Saga[Order]:
        saga = Saga("losing", version=1, input=Order, key=lambda order: order.id)

        def step(name: str) -> Step[Order, None]:
            @saga.step(repeat=Repeat.NEVER, name=name)
            async def call(ctx: Context[Order]) -> None:
                self.calls[f"{ctx.input.id} {name}"] += 1
                for _ in range(self.dice.randrange(4)):
                    await asyncio.sleep(0)

            return call

        branches = [sequence(*(step(f"s{branch}{n}") for n in range(LENGTH))) for branch in range(BRANCHES)]
        saga.flow(all_of(*branches))
        return saga


async def announce(it: Rig, hand: Hand, dice: random.Random) -> None:
    """Announce what is live, some of it twice, as the broker and the nudges do."""
    rows = await it.database.pool.fetch(
        "SELECT run_id, name FROM milepost.step WHERE state IN ('PENDING', 'RUNNING')"
    )
    chosen = [row for row in rows for _ in range(dice.choice((1, 1, 2)))]
    dice.shuffle(chosen)

    async def take(run: UUID, step: str) -> None:
        with suppress(*DATABASE_ERRORS):
            await hand.worker.take(WorkMessage(run=run, saga="losing", definition=1, step=step))

    await asyncio.gather(*(take(row["run_id"], row["name"]) for row in chosen))


async def losing(proxy: Proxy, dice: random.Random) -> None:
    """Lose one answer after the other."""
    for _ in range(FAULTS):
        before = proxy.lost
        proxy.lose(dice.choice(MARKERS))
        for _ in range(40):
            if proxy.lost > before:
                break
            await asyncio.sleep(0.02)
    proxy.marker = b""


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_step_is_called_once_and_none_is_left(database_url: str, seed: int) -> None:
    dice = random.Random(seed)
    world = World(dice)
    saga = world.saga()
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        for n in range(RUNS):
            await it.start(saga, Order(id=f"o-{n}"))
        async with worker_on(through, it.service, slots=16) as hand:
            faults = asyncio.create_task(losing(proxy, dice))

            async def ended() -> bool:
                await announce(it, hand, dice)
                done = await it.value("SELECT count(*) FROM milepost.run WHERE state = 'SUCCEEDED'")
                return bool(done == RUNS)

            await until(ended, within=25, what="the end of all runs, long before any hard timeout")
            faults.cancel()
            await asyncio.gather(faults, return_exceptions=True)
        assert proxy.lost > 0, "no fault happened"
        assert set(world.calls.values()) == {1} and len(world.calls) == RUNS * BRANCHES * LENGTH
        late = "SELECT count(*) FROM milepost.history WHERE event = 'step.late_result'"
        assert await it.value(late) == 0
