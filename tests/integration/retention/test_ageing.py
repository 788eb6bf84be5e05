"""Months of history and audit go whole, and never while a run that is kept has a row in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.support.outbox import connected
from tests.support.retained import (
    IDS,
    ageing,
    attached,
    days,
    month,
    retention,
    run_of,
    runs_in,
    stop,
    there,
    told,
)
from tests.support.waiting import until

ASKED = (
    "INSERT INTO milepost.request (id, service, run_id, what, undo, by, reason, state, answer, answered_at, at)"
    " SELECT gen_random_uuid(), 's', $1, 'cancel', true, 'ann', 'r', $2::text, CASE WHEN $2 <> 'OPEN' THEN 'x' END,"
    " CASE WHEN $2 <> 'OPEN' THEN clock_timestamp() - $3::interval END, clock_timestamp() - $3::interval"
)
FOUND = (
    "INSERT INTO milepost.reconciliation (id, run_id, step, before, evidence, decision, after, actor, reason,"
    " correlation_id, at) SELECT gen_random_uuid(), $1, 's', 'UNKNOWN', '{}', 'RETRY', 'PENDING', 'system', 'r', '',"
    " clock_timestamp() - $2::interval"
)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


async def test_an_old_month_goes_when_all_its_runs_are_gone(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    run = await run_of(connection, began=200, ended=191)
    history, audit = await told(connection, run, 200)
    await ageing(database_url).tidy(stop())
    assert await attached(connection, history), "the run is still there"
    await retention(database_url).tidy(stop())
    await ageing(database_url).tidy(stop())
    assert not await there(connection, history)
    assert await attached(connection, audit), "the audit has a rule of its own"
    await ageing(database_url, keep_audit=days(90)).tidy(stop())
    assert not await there(connection, audit)


async def test_a_month_stays_whole_while_one_live_run_has_a_row_in_it(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    gone, live = IDS.new(), await run_of(connection, began=200, ended=None)
    history, audit = await told(connection, gone, 200)
    await told(connection, live, 200)
    later, _ = await told(connection, gone, 160)
    await ageing(database_url, keep_audit=days(90)).tidy(stop())
    assert not await there(connection, later)
    for name in (history, audit):
        assert await attached(connection, name)
        assert await connection.fetchval(f"SELECT count(*) FROM milepost.{name}") == 2
    assert await runs_in(connection, "history") == {gone, live}


async def test_a_month_is_counted_from_its_end(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    name = await month(connection, "history", 100)
    ended = await connection.fetchval(
        "SELECT clock_timestamp() - upper_bound"
        " FROM milepost.partition_of('history', clock_timestamp() - interval '100 days')"
    )
    await ageing(database_url, keep_history=ended + days(0.01), keep_runs=days(1)).tidy(stop())
    assert await attached(connection, name)
    await ageing(database_url, keep_history=ended - days(0.01), keep_runs=days(1)).tidy(stop())
    assert not await there(connection, name)


async def test_an_interrupted_detach_is_finished_and_a_detached_month_of_a_kept_run_comes_back(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    live = await run_of(connection, began=200, ended=None)
    name, _ = await told(connection, live, 200)
    empty = await month(connection, "history", 150)
    async with connected(database_url) as (reader,):
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT count(*) FROM milepost.history")
        await connection.execute("SET lock_timeout = '200ms'")
        for each in (name, empty):
            with pytest.raises((asyncpg.LockNotAvailableError, asyncpg.ObjectNotInPrerequisiteStateError)):
                await connection.execute(
                    f"ALTER TABLE milepost.history DETACH PARTITION milepost.{each} CONCURRENTLY"
                )
        await transaction.rollback()
    await ageing(database_url).tidy(stop())
    assert await attached(connection, name) and not await there(connection, empty)
    assert await runs_in(connection, "history") == {live}


async def test_writers_do_not_wait_for_a_month_that_leaves(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    name = await month(connection, "history", 200)
    async with connected(database_url) as (reader,):
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT count(*) FROM milepost.history")  # keeps the detach waiting
        leaving = asyncio.create_task(ageing(database_url).tidy(stop()))
        await until(
            lambda: connection.fetchval("SELECT bool_or(inhdetachpending) FROM pg_inherits"),
            what="the detach to begin",
        )
        await asyncio.wait_for(told(connection, IDS.new(), 0), 5)
        await transaction.rollback()
        await asyncio.wait([leaving], timeout=20)
    assert leaving.done()
    if leaving.exception() is not None:  # the reader took longer than the lock timeout
        await ageing(database_url).tidy(stop())
    assert not await there(connection, name)


async def test_requests_and_reconciliations_go_after_their_run(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    kept, gone = await run_of(connection, began=200, ended=None), IDS.new()
    for run in (kept, gone):
        for age in (100, 10):
            await connection.execute(ASKED, run, "REFUSED", days(age))
            await connection.execute(FOUND, run, days(age))
    await connection.execute(ASKED, gone, "OPEN", days(300))
    await ageing(database_url).tidy(stop())
    asked = "SELECT run_id, state FROM milepost.request"
    left = sorted((str(row["run_id"]), row["state"]) for row in await connection.fetch(asked))
    expected = [(gone, "OPEN"), (gone, "REFUSED"), (kept, "REFUSED"), (kept, "REFUSED")]
    assert left == sorted((str(run), state) for run, state in expected)
    rows = await connection.fetch("SELECT run_id FROM milepost.reconciliation")
    assert sorted(map(str, (row["run_id"] for row in rows))) == sorted(map(str, (kept, kept, gone)))


async def test_a_user_who_does_not_own_the_tables_is_told_and_takes_no_turn(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    name = f"r{UUID(int=IDS.new().int).hex[:20]}"
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' IN ROLE milepost_runtime")
    try:
        place = database_url.partition("://")[2].rpartition("@")[2]
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="does not own history and audit"):
            await ageing(f"postgresql://{name}:x@{place}").tidy(stop())
        assert await connection.fetchval("SELECT count(*) FROM milepost.retention") == 0
    finally:
        await connection.execute(f"DROP ROLE {name}")
