"""A fan-out of many items: no statement of it reads all of them, and the last item costs what the first did."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import md5
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost import Context, Milepost, Repeat, Saga
from milepost.console.store import Sql as RunsSql
from milepost.consumers.engine import Engine, changes_of
from milepost.consumers.fanout import Place, Sql, look_after_items
from milepost.consumers.fanout_items import Sql as ItemsSql
from milepost.consumers.joining import Sql as ChildSql
from milepost.consumers.store import Sql as SagaSql
from milepost.consumers.store_many import Sql as ManySql
from milepost.streams.database import Database
from pydantic import BaseModel

from tests.plans.conftest import ROWS
from tests.plans.test_plans import NEW, Hot, explained, grows, named, nodes
from tests.support.engine import settings_for
from tests.support.outbox import connected
from tests.support.waiting import until
from tests.support.workers import worker_on

LIST = (UUID(md5(b"f", usedforsecurity=False).hexdigest()), "send", "")
HALF = ROWS // 2
UNDER_WAY = [named("r", n) for n in range(HALF - 19, HALF + 1)]
NEXT = list(range(HALF, HALF + 100))
ITEMS = Sql.items_by_index

QUERIES = {
    "lock": Hot(Sql.lock_list, LIST, 20, ITEMS),
    "lists of runs": Hot(Sql.lists_of, (UNDER_WAY,), 300, ITEMS),
    "runs under way": Hot(Sql.started_runs, LIST, 100, ITEMS),
    "ends": Hot(Sql.end_items, (*LIST, UNDER_WAY, False), 1000, ITEMS),
    "next": Hot(Sql.next_items, (*LIST, HALF, 100), 60, ITEMS),
    "give out": Hot(
        Sql.give_out,
        (*LIST, NEXT, ["STARTED"] * 100, NEW, [False] * 100, *([None] * 100 for _ in range(2))),
        5000,
        ITEMS,
    ),
    "again": Hot(Sql.begin_again, LIST, ROWS // 20 * 2, ITEMS),
    "give up": Hot(Sql.give_up, (*LIST, HALF, HALF + 100), 5000, ITEMS),
    "let go": Hot(Sql.let_go, LIST, 100, ITEMS),
    "keys": Hot(
        ManySql.take_run_keys, ("", "order", [f"new{n}" for n in range(100)], NEW, [b"x"] * 100), 1000, ITEMS
    ),
    "how they stand, with the run": Hot(SagaSql.load_run, (LIST[0],), 60),
    "how they stand, at the console": Hot(RunsSql.load_steps, (LIST[0],), 60),
    "failed": Hot(ItemsSql.failed_items, (*LIST, -1, 20), 100),
    "a page": Hot(ItemsSql.items_of, (*LIST, HALF, 100, None), 300),
    "children that ended": Hot(ChildSql.child_ended, (UNDER_WAY,), 100),
    "parents": Hot(ChildSql.parents, (UNDER_WAY,), 100),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_by_index(large_database_url: str, name: str) -> None:
    hot = QUERIES[name]
    async with connected(large_database_url) as (connection,):
        plan = await explained(connection, hot)
    scans = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan" and grows(node["Relation Name"])]
    assert not scans, json.dumps(plan, indent=1)
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert touched <= hot.pages, f"{touched} pages: {json.dumps(plan, indent=1)}"


# --- the last item costs what the first did ---------------------------------------------------------------

WAVES, WAVE, AT_ONCE = 6, 500, 100


class Item(BaseModel):
    name: str


class Batch(BaseModel):
    name: str


def sagas() -> tuple[Saga[Batch], Saga[Item]]:
    """A fan-out of items that do nothing."""
    item = Saga("item", version=1, input=Item, key=lambda given: given.name)

    @item.step(repeat=Repeat.SAFE)
    async def do(ctx: Context[Item]) -> None: ...

    item.flow(do)
    batch = Saga("batch", version=1, input=Batch, key=lambda given: given.name)

    async def items(ctx: Context[Batch]) -> AsyncIterator[Item]:
        for n in range(WAVES * WAVE):
            yield Item(name=f"{ctx.input.name}-{n}")

    batch.flow(batch.each("spread", item, items=items, concurrency=AT_ONCE))
    return batch, item


@dataclass(frozen=True)
class Cost:
    """What the items of a wave cost: rows of the list's tables that were read by index, and read from end to end."""

    by_index: int
    end_to_end: int


async def cost(url: str) -> Cost:
    """Read the counts; those of a connection are there once it is closed."""
    connection = await asyncpg.connect(url)
    try:
        row = await connection.fetchrow(
            "SELECT sum(idx_tup_fetch)::bigint AS by_index, sum(seq_tup_read)::bigint AS end_to_end"
            " FROM pg_stat_user_tables WHERE relname IN ('fanout', 'fanout_item', 'child_run')"
        )
        assert row is not None
        return Cost(*row)
    finally:
        await connection.close()


async def backends(url: str) -> set[int]:
    """Return the processes of the server that work on this database, but for the one that is asked."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {row["pid"] for row in rows}
    finally:
        await connection.close()


async def only(url: str, pid: int) -> bool:
    """Whether no other process of the server works on this database."""
    return await backends(url) <= {pid}


@asynccontextmanager
async def by_itself(url: str, service: Milepost) -> AsyncIterator[Engine]:
    """Open an engine whose connections have ended afterwards, and so told what they have read."""
    before = await backends(url)
    database = Database(settings_for(url))
    await database.open()
    try:
        yield Engine(changes_of(service), database.pool)
        mine = await backends(url) - before
    finally:
        await database.close()

    async def gone() -> bool:
        return not mine & await backends(url)

    await until(gone, within=30, what="its connections to end")


async def wave(engine: Engine, place: Place) -> None:
    """See so many items through: each is ended by hand as soon as it has begun."""
    for _ in range(WAVE // AT_ONCE):
        ended: list[Any] = await engine.pool.fetch(
            "UPDATE milepost.run SET state = 'SUCCEEDED', wake_at = NULL, finished_at = milepost.clock()"
            " WHERE saga = 'item' AND finished_at IS NULL RETURNING id"
        )
        assert len(ended) == AT_ONCE
        await look_after_items(engine, place, [row["id"] for row in ended])


async def test_the_last_item_costs_what_the_first_did(database_url: str) -> None:
    batch, item = sagas()
    service = Milepost("waves", sagas=[batch, item], settings=settings_for(database_url))
    connection = await asyncpg.connect(database_url)
    async with worker_on(database_url, service) as hand:
        async with connection.transaction():
            run = await service.start(connection, batch, Batch(name="b"))
        assert await hand.take(run.id, "batch", "spread")
        await until(hand.idle, within=60, what="the list")
    place = Place(run.id, "spread", "")
    async with by_itself(database_url, service) as engine:
        await look_after_items(engine, place)
    version = await connection.fetchval("SELECT version FROM milepost.run WHERE id = $1", run.id)
    mine = connection.get_server_pid()
    await until(lambda: only(database_url, mine), within=30, what="the worker's connections to end")
    counted = [await cost(database_url)]
    for _ in range(WAVES):
        async with by_itself(database_url, service) as engine:
            await wave(engine, place)
        counted.append(await cost(database_url))
    row = await connection.fetchrow("SELECT version, state FROM milepost.run WHERE id = $1", run.id)
    await connection.close()
    assert row is not None
    assert (row["version"], row["state"]) == (version + 1, "SUCCEEDED"), "its row is written once, at the end"
    waves = [after.by_index - before.by_index for before, after in pairwise(counted)]
    assert max(waves[1:]) <= 1.1 * waves[1], f"rows read by wave: {waves}"
    assert counted[-1].end_to_end == counted[0].end_to_end
