"""Runs of equal fingerprint: an earlier one that succeeded is used, and two at once are one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from milepost import Context, Milepost, Refused, Repeat, RunState, Saga, Settings, StateError, UsageError
from milepost.testing import open_kit
from pydantic import BaseModel, PostgresDsn

from tests.support.engine import Rig, rig

NOWHERE = Settings(database_url=PostgresDsn("postgresql://nobody@milepost.invalid/none"))


class Task(BaseModel):
    name: str
    commit: str = "c1"


class World:
    """What steps did, and what is to fail."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refused: set[str] = set()


def thinking(**options: Any) -> tuple[Saga[Task], World]:
    """A saga that costs something."""
    world = World()
    saga = Saga(
        "ai",
        version=1,
        input=Task,
        key=lambda t: t.name,
        fingerprint=lambda t: {"commit": t.commit},
        **options,
    )

    @saga.step(repeat=Repeat.SAFE)
    async def think(ctx: Context[Task]) -> None:
        world.done.append(ctx.input.name)
        if ctx.input.name in world.refused:
            raise Refused("NO")

    saga.flow(think)
    return saga, world


async def test_what_succeeded_is_used_again_and_what_did_not_is_done_anew() -> None:
    saga, world = thinking()
    world.refused.add("fails")
    async with open_kit(Milepost("brain", sagas=[saga], settings=NOWHERE)) as kit:

        async def start(name: str, *, commit: str = "c1", reuse: bool = True) -> Any:
            return await kit.start(saga, Task(name=name, commit=commit), reuse=reuse)

        failed = await start("fails")
        await kit.until(failed, RunState.FAILED)
        one = await start("one")
        assert not one.reused
        joined = await start("while it runs")
        assert (joined.id, joined.reused) == (one.id, True), "two at once are one"
        await kit.until(one, RunState.SUCCEEDED)
        two = await start("two")
        assert (two.id, two.key, two.reused) == (one.id, "one", True)
        again = await start("two")
        assert again.id == one.id, "its key names the earlier run for good"
        other = await start("other", commit="c2")
        fresh = await start("fresh", reuse=False)
        for run in (other, fresh):
            assert not run.reused
            await kit.until(run, RunState.SUCCEEDED)
        last = await start("last")
        assert last.id == fresh.id, "the last one stands for all"
        with pytest.raises(StateError, match="MP302"):
            await start("two", commit="c3")
    assert world.done == ["fails", "one", "other", "fresh"]


async def test_many_starts_at_once_are_one_run(database_url: str) -> None:
    saga, _ = thinking()
    async with rig(database_url, saga) as service:

        async def start(n: int) -> Any:
            async with service.database.pool.acquire() as connection, connection.transaction():
                run = await service.service.start(connection, saga, Task(name=str(n)), reuse=True)
                await asyncio.sleep(0)
                return run

        runs = await asyncio.gather(*map(start, range(8)))
        assert len({run.id for run in runs}) == 1 and sum(not run.reused for run in runs) == 1
        assert await _counts(service) == (1, 1, 8)


async def test_a_start_that_is_rolled_back_or_refused_stands_for_nothing(database_url: str) -> None:
    saga, _ = thinking(lock=lambda t: "one", if_locked="reject")
    async with rig(database_url, saga) as service:
        pool = service.database.pool
        with pytest.raises(RuntimeError):
            async with pool.acquire() as connection, connection.transaction():
                await service.service.start(connection, saga, Task(name="back"), reuse=True)
                raise RuntimeError
        assert await _counts(service) == (0, 0, 0)
        await service.start(saga, Task(name="one", commit="c1"))
        async with pool.acquire() as connection, connection.transaction():
            with pytest.raises(StateError, match="MP334"):
                await service.service.start(connection, saga, Task(name="two", commit="c2"), reuse=True)
        assert await _counts(service) == (1, 1, 1)


async def test_reuse_needs_a_fingerprint(database_url: str) -> None:
    saga = Saga("plain", version=1, input=Task, key=lambda t: t.name)

    @saga.step(repeat=Repeat.SAFE)
    async def act(ctx: Context[Task]) -> None: ...

    saga.flow(act)
    async with rig(database_url, saga) as service, service.database.pool.acquire() as connection:
        async with connection.transaction():
            with pytest.raises(UsageError, match="MP368"):
                await service.service.start(connection, saga, Task(name="one"), reuse=True)


async def _counts(service: Rig) -> tuple[int, int, int]:
    row = await service.row(
        "SELECT (SELECT count(*) FROM milepost.run), (SELECT count(*) FROM milepost.fingerprint WHERE current), "
        "(SELECT count(*) FROM milepost.run_key)"
    )
    return (row[0], row[1], row[2])
