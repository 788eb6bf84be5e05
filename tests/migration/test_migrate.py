"""Migrations on a real server: in order, once, by whoever comes first, and never backwards."""

from __future__ import annotations

import asyncio
from importlib.resources import files

import asyncpg
import pytest
from milepost.schemas.errors import ConnectError, StartError
from milepost.streams.migrate import current_version, migrate, migration_files

from tests.support.outbox import connected

NEWEST = len(migration_files())


async def tables(url: str) -> int:
    async with connected(url) as (connection,):
        found = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'milepost'")
        return int(found)


async def test_an_empty_database_gets_everything(empty_database_url: str) -> None:
    planned = await migrate(empty_database_url, dry_run=True)
    assert (planned.from_version, planned.to_version, len(planned.files)) == (0, NEWEST, NEWEST)
    assert await current_version(empty_database_url) == 0, "a dry run changes nothing"
    assert await migrate(empty_database_url) == planned
    assert await current_version(empty_database_url) == NEWEST


async def test_a_second_time_changes_nothing(empty_database_url: str) -> None:
    await migrate(empty_database_url)
    before = await tables(empty_database_url)
    again = await migrate(empty_database_url)
    assert (again.from_version, again.to_version, again.files) == (NEWEST, NEWEST, [])
    assert await tables(empty_database_url) == before


async def test_two_at_once(empty_database_url: str) -> None:
    both = await asyncio.gather(migrate(empty_database_url), migrate(empty_database_url))
    assert sorted(len(result.files) for result in both) == [0, NEWEST]
    async with connected(empty_database_url) as (connection,):
        assert await connection.fetchval("SELECT count(*) FROM milepost.migration") == NEWEST


async def test_a_newer_database_is_refused(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute("INSERT INTO milepost.migration (number, name) VALUES (9999, 'later')")
    before = await tables(database_url)
    with pytest.raises(StartError) as raised:
        await migrate(database_url)
    assert raised.value.code == "MP204"
    assert "9999" in raised.value.text and str(NEWEST) in raised.value.text
    assert await tables(database_url) == before


@pytest.mark.parametrize("to", [NEWEST + 1, 0])
async def test_a_version_behind_or_unknown_is_refused(database_url: str, to: int) -> None:
    with pytest.raises(StartError) as raised:
        await migrate(database_url, to=to)
    assert raised.value.code == "MP205"


async def test_to_zero_on_an_empty_database_does_nothing(empty_database_url: str) -> None:
    assert (await migrate(empty_database_url, to=0)).files == []
    assert await tables(empty_database_url) == 0


async def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(ConnectError) as raised:
        await migrate("postgresql://nobody@127.0.0.1:1/shop")
    assert raised.value.code == "MP501"
    assert "127.0.0.1:1" in raised.value.text and "MILEPOST_DATABASE_URL" in raised.value.text


async def test_a_missing_database_is_named(empty_database_url: str) -> None:
    with pytest.raises(ConnectError, match=r"MP501.*nowhere"):
        await migrate(empty_database_url.rpartition("/")[0] + "/nowhere")


async def test_partitions_reach_a_week_ahead(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        for table in ("outbox", "history", "audit"):
            column = "created_at" if table == "outbox" else "at"
            ahead = await connection.fetchval(
                "SELECT count(*) FROM generate_series(0, 7) AS days (n)"
                " WHERE EXISTS (SELECT FROM pg_inherits WHERE inhparent = ('milepost.' || $1)::regclass"
                " AND inhrelid = to_regclass('milepost.' || (milepost.partition_of($1,"
                " clock_timestamp() + make_interval(days => days.n))).name))",
                table,
            )
            assert ahead == 8, f"{table} by {column}"


async def schema_of(url: str) -> dict[str, list[str]]:
    async with connected(url) as (connection,):
        columns = await connection.fetch(
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_schema = 'milepost' ORDER BY table_name, ordinal_position"
        )
        indexes = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'milepost' ORDER BY indexdef"
        )
        constraints = await connection.fetch(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'milepost'::regnamespace ORDER BY 1, 2"
        )
        functions = await connection.fetch(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'milepost'::regnamespace ORDER BY 1"
        )
        grants = await connection.fetch(
            "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'milepost'::regnamespace ORDER BY 1"
        )
    found = {
        "columns": columns,
        "indexes": indexes,
        "constraints": constraints,
        "functions": functions,
        "grants": grants,
    }
    return {name: [str(tuple(row)) for row in rows] for name, rows in found.items()}


async def test_schema_sql_equals_the_migrations(empty_database_url: str, database_url: str) -> None:
    text = (files("milepost.schemas") / "sql" / "schema.sql").read_text()
    async with connected(empty_database_url) as (connection,):
        await connection.execute(text)
        await connection.execute("SELECT milepost.make_partitions(7)")
    assert await schema_of(empty_database_url) == await schema_of(database_url)
    assert text == "".join(file.sql for file in migration_files())


@pytest.mark.parametrize("table", ["audit", "history", "outbox", "reconciliation"])
async def test_the_runtime_role_can_only_add(database_url: str, table: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute("SET ROLE milepost_runtime")
        assert await connection.fetchval(f"SELECT count(*) FROM milepost.{table}") == 0
        for statement in (
            f"UPDATE milepost.{table} SET {'tenant' if table != 'history' else 'event'} = 'x'",
            f"DELETE FROM milepost.{table}",
            f"TRUNCATE milepost.{table}",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_the_runtime_role_can_work(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute("SET ROLE milepost_runtime")
        await connection.execute(
            "INSERT INTO milepost.outbox (id, topic, aggregatetype, type) VALUES (gen_random_uuid(), 't', 't', 't')"
        )
        await connection.execute(
            "INSERT INTO milepost.audit (id, actor, act, reason) VALUES (gen_random_uuid(), 'a', 'b', 'c')"
        )
        await connection.execute("INSERT INTO milepost.outbox_lease (outbox, expires_at) VALUES ('o', now())")
        await connection.execute("UPDATE milepost.outbox_lease SET expires_at = now()")
        await connection.execute("DELETE FROM milepost.outbox_position")
        assert await connection.fetchval("SELECT count(*) FROM milepost.outbox") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("CREATE TABLE milepost.own (n integer)")
