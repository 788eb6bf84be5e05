"""Who applies changes keeps a connection for a moment; no change is left lying when it is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost import Context, Repeat, Saga
from milepost.consumers import store_many, together
from milepost.consumers.batching import ToStore
from milepost.consumers.grouping import Group
from milepost.sagas.facts import Claim
from milepost.schemas.ids import Ids, SystemClock
from pydantic import BaseModel

from tests.support.engine import Rig, rig, worker_id
from tests.support.waiting import until


class Order(BaseModel):
    id: str


def short() -> Saga[Order]:
    made = Saga("short", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE)
    async def only(ctx: Context[Order]) -> None: ...

    made.flow(only)
    return made


async def started(it: Rig, saga: Saga[Order], count: int) -> list[UUID]:
    return [(await it.start(saga, Order(id=f"o-{n}"))).id for n in range(count)]


def runners() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "milepost changes"]


async def test_what_comes_while_all_connections_are_being_given_back_is_done(database_url: str) -> None:
    saga, taken, going_back = short(), list[Any](), list[Any]()
    two_work, may_go = asyncio.Event(), asyncio.Event()

    async def take(connection: Any) -> None:
        taken.append(connection)
        await two_work.wait()

    async def give_back(connection: Any) -> None:
        going_back.append(connection)
        await may_go.wait()
        await connection.reset()

    async with (
        rig(database_url, saga) as it,
        asyncpg.create_pool(database_url, min_size=2, setup=take, reset=give_back) as slow,
    ):
        first, second, third = await started(it, saga, 3)
        it.engine._group._pool = slow
        try:
            changes = [asyncio.create_task(it.engine.change(first, Claim("only", worker_id())))]
            await until(lambda: len(taken) == 1, what="somebody who takes the first")
            changes.append(asyncio.create_task(it.engine.change(second, Claim("only", worker_id()))))
            await until(lambda: len(taken) == 2, what="another one who takes the second")
            two_work.set()
            await until(lambda: len(going_back) == 2, what="both to give their connections back")
            changes.append(asyncio.create_task(it.engine.change(third, Claim("only", worker_id()))))
            await asyncio.sleep(0)
        finally:
            two_work.set()
            may_go.set()  # else the pool would wait for them for good
        answers = await asyncio.wait_for(asyncio.gather(*changes), 10)
        assert all(answer is not None and answer.decision.claimed for answer in answers)


async def test_what_comes_after_a_cancelled_wait_for_more_is_done(database_url: str) -> None:
    """As when a program ends: all its tasks are cancelled, and steps still want to say what became of them."""
    saga = short()
    async with rig(database_url, saga) as it:
        first, second = await started(it, saga, 2)
        assert await it.engine.change(first, Claim("only", worker_id()))
        await until(lambda: bool(it.engine._group._lingering), what="a wait for more")
        for runner in runners():
            runner.cancel()
        await until(lambda: not runners(), what="its end")
        assert await asyncio.wait_for(it.engine.change(second, Claim("only", worker_id())), 10)


class Late(SystemClock):
    """A clock that goes on while something stands still."""

    def __init__(self) -> None:
        self.later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


async def test_a_process_that_stood_still_reads_the_run_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga, clock = short(), Late()

    async def slow(connection: Any, many: Sequence[ToStore], ids: Ids) -> Mapping[UUID, datetime]:
        stored = await store_many.store_decisions(connection, many, ids)
        clock.later += 10
        return stored

    async with rig(database_url, saga) as it:
        first, second = await started(it, saga, 2)
        group = Group(replace(it.engine.changes, clock=clock), it.database.pool)
        at_once = await group.change(first, Claim("only", worker_id()))
        assert at_once is not None and at_once.known is not None
        monkeypatch.setattr(together, "store_decisions", slow)
        after_a_while = await group.change(second, Claim("only", worker_id()))
        assert after_a_while is not None and after_a_while.decision.claimed is not None
        assert after_a_while.known is None


async def test_settings_are_gone_before_anybody_else_has_the_connection(database_url: str) -> None:
    saga = short()
    changed = "SELECT name FROM pg_settings WHERE setting IS DISTINCT FROM reset_val AND source = 'session'"
    async with rig(database_url, saga, max_size=1) as it:
        (run,) = await started(it, saga, 1)
        async with it.database.pool.acquire() as connection:
            pid = connection.get_server_pid()
        assert await it.engine.change(run, Claim("only", worker_id()))
        async with it.database.pool.acquire() as connection:
            assert connection.get_server_pid() == pid, "the same connection"
            assert await connection.fetch(changed) == []
