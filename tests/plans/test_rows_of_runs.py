"""What many runs leave behind: row versions that cost the last run no more than the first.

Waves of runs go through a worker, many in a transaction. 6 waves of 100 runs, 20 of 1,000 with MILEPOST_CHAOS=long. No
statement of theirs may read a table from end to end, and what a run costs in row versions and pages does not grow.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from uuid import UUID

import asyncpg
from milepost import Context, Milepost, Repeat, Saga
from milepost.schemas.messages import WorkMessage
from pydantic import BaseModel

from tests.support.engine import settings_for
from tests.support.waiting import until
from tests.support.workers import worker_on

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
WAVES, RUNS, STEPS = (20, 1000, 5) if LONG else (6, 100, 5)
#: What a table and its indexes may grow by beside, since they grow by whole pages: bytes.
PAGES = 8 * 8192
TABLES = ("run", "step", "run_key", "history", "outbox")
#: Counts of a table and of its partitions; those of a connection are there once it is closed.
COUNTS = (
    "SELECT sum(seq_tup_read)::bigint AS read, sum(n_tup_upd)::bigint AS updated, sum(n_tup_hot_upd)::bigint AS hot,"
    " sum(n_dead_tup)::bigint AS dead, sum(n_live_tup)::bigint AS live,"
    " sum(pg_total_relation_size(relid))::bigint AS bytes"
    " FROM pg_stat_all_tables WHERE schemaname = 'milepost' AND relname ~ ('^' || $1 || '(_[0-9].*)?$')"
)


#: Dead row versions after which a table is cleaned up, whatever its size.
CLEANED = 20_000


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int = 1


def saga() -> Saga[Order]:
    """Five steps that do nothing."""
    made = Saga("waves", version=1, input=Order, key=lambda order: order.id)
    for n in range(STEPS):

        async def step(ctx: Context[Order]) -> Number:
            return Number()

        made.step(repeat=Repeat.SAFE, name=f"s{n}")(step)
    made.flow(*made.nodes)
    return made


@dataclass(frozen=True)
class Counts:
    """A table after a wave."""

    read: int
    updated: int
    hot: int
    dead: int
    live: int
    bytes: int


async def counts(url: str) -> dict[str, Counts]:
    """Counts of all tables."""
    connection = await asyncpg.connect(url)
    try:
        found = {}
        for table in TABLES:
            row = await connection.fetchrow(COUNTS, table)
            assert row is not None
            found[table] = Counts(*row)
        return found
    finally:
        await connection.close()


async def wave(url: str, service: Milepost, order: Saga[Order], number: int) -> None:
    """Start runs and see them through; all connections are closed at the end."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            starts = [await service.start(connection, order, Order(id=f"{number}-{n}")) for n in range(RUNS)]
    finally:
        await connection.close()
    runs = [run.id for run in starts]
    async with worker_on(url, service, slots=64) as hand:

        async def feed(some: list[UUID]) -> None:
            for run in some:
                await hand.worker.take(WorkMessage(run=run, saga="waves", definition=1, step="s0"))

        await asyncio.gather(*(feed(runs[n::64]) for n in range(64)))
        await until(hand.idle, within=120, what="the end of the wave")


async def test_the_last_of_many_runs_costs_what_the_first_cost(database_url: str) -> None:
    order = saga()
    service = Milepost("waves", sagas=[order], settings=settings_for(database_url))
    tables = await counts(database_url)
    after: list[dict[str, Counts]] = []
    connection = await asyncpg.connect(database_url)
    try:
        for number in range(WAVES):
            await wave(database_url, service, order, number)
            if number == 0:
                # A plan may read a table that is nearly empty; from here on the tables are large enough to tell.
                await connection.execute("ANALYZE milepost.run, milepost.step, milepost.run_key")
                tables = await counts(database_url)
            dead = (await counts(database_url))["run"].dead
            assert dead <= 8 * RUNS, f"{dead} dead versions after a wave of {RUNS} runs of {STEPS} steps"
            await connection.execute("VACUUM milepost.run, milepost.step, milepost.run_key")
            after.append(await counts(database_url))
        ended = await connection.fetchval("SELECT count(*) FROM milepost.run WHERE state = 'SUCCEEDED'")
    finally:
        await connection.close()
    assert ended == WAVES * RUNS
    for table in ("run", "step", "run_key"):
        read = after[-1][table].read - tables[table].read
        assert read == 0, f"{table}: {read} rows were read from end to end"
        assert after[-1][table].dead == 0, f"{table}: vacuum leaves nothing behind"
        first = (after[1][table].bytes - after[0][table].bytes) or 1
        last = (after[-1][table].bytes - after[1][table].bytes) / (WAVES - 2)
        assert last <= 1.5 * first + PAGES, (
            f"{table}: {last:.0f} bytes a wave at the end, {first} at the beginning"
        )
    run = after[-1]["run"]
    updates = run.updated / (WAVES * RUNS)
    assert updates <= STEPS + 1, f"{updates} updates of its row a run: a claim, and one a step"
    assert run.hot / run.updated >= 0.5, (
        f"{run.hot} of {run.updated} updates stay on their page, without an index entry"
    )


async def test_cleaning_up_does_not_wait_for_a_share_of_what_is_kept(database_url: str) -> None:
    """By default a table is vacuumed when a fifth of it is dead: 200,000 versions at a million retained runs."""
    connection = await asyncpg.connect(database_url)
    try:
        for table in ("run", "step"):
            options = await connection.fetchval(
                "SELECT reloptions FROM pg_class WHERE oid = $1::text::regclass", f"milepost.{table}"
            )
            assert {"autovacuum_vacuum_scale_factor=0", f"autovacuum_vacuum_threshold={CLEANED}"} <= set(
                options
            )
    finally:
        await connection.close()
