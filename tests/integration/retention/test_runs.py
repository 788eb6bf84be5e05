"""Runs go by their end, with their steps and waits; their keys stay, and of what is live nothing goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from milepost import Context, Repeat, Saga, StateError
from milepost.consumers.retention import Retention, Sql
from milepost.schemas.states import FINAL_RUN_STATES
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.outbox import connected
from tests.support.retained import days, retention, run_of, runs_in, stop

KEPT = ("run", "step", "wait", "fanout", "fanout_item")


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


async def test_what_ended_long_ago_goes_and_nothing_else(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    old = {await run_of(connection, began=200, ended=91, state=state) for state in FINAL_RUN_STATES}
    young = {await run_of(connection, began=200, ended=89, state=state) for state in FINAL_RUN_STATES}
    live = {await run_of(connection, began=1000, ended=None)}
    await retention(database_url, keep_runs=days(90)).tidy(stop())
    for table in KEPT:
        assert await runs_in(connection, table) == young | live, table
    assert await runs_in(connection, "run_key") == old | young | live


async def test_a_row_that_somebody_works_with_waits_for_nobody_and_stays(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    busy, idle = [await run_of(connection, began=200, ended=100) for _ in range(2)]
    async with connected(database_url) as (other,):
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM milepost.run WHERE id = $1 FOR UPDATE", busy)
        await asyncio.wait_for(retention(database_url).tidy(stop()), 10)
        assert await runs_in(connection, "run") == {busy}
        await transaction.rollback()
    await retention(database_url).tidy(stop())
    assert await runs_in(connection, "run") == set() and idle != busy


async def test_a_walk_that_is_stopped_goes_on_at_the_next(
    database_url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await run_of(connection, began=1000, ended=None)
    await connection.execute(
        "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, finished_at,"
        " correlation_id, created_at) SELECT gen_random_uuid(), 's', 'order', n::text, 1, '', '', '{}', 'FAILED',"
        " clock_timestamp() - interval '100 days', '', clock_timestamp() - interval '101 days'"
        " FROM generate_series(1, 1200) AS n"
    )
    asked = stop()
    real = Retention._resting

    async def once(self: Retention, act: Any, stop: Any) -> int:
        gone = await real(self, act, stop)
        if gone == 500:
            asked.ask()
        return gone

    monkeypatch.setattr(Retention, "_resting", once)
    await retention(database_url).tidy(asked)
    assert await connection.fetchval("SELECT count(*) FROM milepost.run") == 701
    monkeypatch.undo()
    await retention(database_url).tidy(stop())
    assert await runs_in(connection, "run") == {live}


async def test_runs_with_many_items_go_a_few_at_a_time(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    runs = [await run_of(connection, began=200 - n, ended=100) for n in range(5)]
    await connection.execute("UPDATE milepost.fanout SET total = 9000 WHERE run_id = ANY ($1)", runs[:4])
    assert await connection.execute(Sql.purge_runs, datetime.now(UTC), 500) == "DELETE 2"
    assert await runs_in(connection, "fanout_item") == set(runs[2:])
    await retention(database_url).tidy(stop())
    assert await runs_in(connection, "fanout_item") == set()


class Order(BaseModel):
    id: str
    amount: int = 1


async def test_starting_again_after_retention_returns_the_run_and_does_nothing_again(
    database_url: str,
) -> None:
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.SAFE)
    async def pack(ctx: Context[Order]) -> None: ...

    saga.flow(pack)
    async with rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        await it.database.pool.execute(
            "UPDATE milepost.run SET state = 'SUCCEEDED', wake_at = NULL, finished_at = milepost.clock()"
        )
        await it.clock("91 days")
        await retention(database_url).tidy(stop())
        assert await it.value("SELECT count(*) FROM milepost.run") == 0
        assert (await it.start(saga, Order(id="o-1"))).id == run.id
        with pytest.raises(StateError, match=r"MP302 .*is no longer stored"):
            await it.start(saga, Order(id="o-1", amount=2))
        assert await it.value("SELECT count(*) FROM milepost.run") == 0
