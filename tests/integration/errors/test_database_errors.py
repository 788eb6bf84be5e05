"""What PostgreSQL's real errors mean, whichever driver they came through; docs/errors.md says the same."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from milepost.consumers.classify import classify
from milepost.schemas.settings import Settings
from pydantic import PostgresDsn
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import create_async_engine

Run = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Run]:
    connection = await asyncpg.connect(url)
    try:
        yield connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Run]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    try:
        yield lambda statement: connection.execute(statement.encode())
    finally:
        await connection.close()


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[Run]:
    engine = create_async_engine(
        Settings(database_url=PostgresDsn(url)).sqlalchemy_url, isolation_level="AUTOCOMMIT"
    )
    try:
        async with engine.connect() as connection:
            yield connection.exec_driver_sql
    finally:
        await engine.dispose()


ALL = pytest.mark.parametrize("driver", [by_asyncpg, by_psycopg, by_sqlalchemy])
TABLES = """
CREATE TABLE paid (id text PRIMARY KEY, amount integer NOT NULL CHECK (amount > 0),
                   parent text REFERENCES paid, during tstzrange, EXCLUDE USING gist (during WITH &&));
INSERT INTO paid VALUES ('o-1', 5, NULL, '[2026-01-01,2026-02-01)')
"""
REFUSED = {
    "INSERT INTO paid VALUES ('o-1', 5)": ("fatal", "UNIQUE_VIOLATION"),
    "INSERT INTO paid VALUES ('o-2', -5)": ("fatal", "CHECK_VIOLATION"),
    "INSERT INTO paid VALUES ('o-2', NULL)": ("fatal", "NOT_NULL_VIOLATION"),
    "INSERT INTO paid VALUES ('o-2', 5, 'nobody')": ("fatal", "FOREIGN_KEY_VIOLATION"),
    "INSERT INTO paid VALUES ('o-2', 5, NULL, '[2026-01-05,2026-01-06)')": ("fatal", "CONSTRAINT_VIOLATION"),
    "SELECT 1 / 0": ("fatal", "DATA_REJECTED"),
    "SELECT 'x'::integer": ("fatal", "DATA_REJECTED"),
    "SELEC 1": ("fatal", "WRONG_SQL"),
    "SELECT * FROM nowhere": ("fatal", "WRONG_SQL"),
    "SET statement_timeout = '50ms'; SELECT pg_sleep(5)": ("retry", "STATEMENT_TIMEOUT"),
    "SET ROLE milepost_runtime; DELETE FROM milepost.audit": ("fatal", "PERMISSION_DENIED"),
    "SET default_transaction_read_only = on; CREATE TABLE no ()": ("retry", "READ_ONLY"),
}


async def told(call: Awaitable[Any]) -> tuple[str, str]:
    try:
        await call
    except Exception as error:
        found = classify(error, {})
        return found.verdict, found.code
    raise AssertionError("nothing was raised")


@pytest.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLES)
    await connection.close()
    yield database_url


@ALL
async def test_what_is_refused(driver: Any, url: str) -> None:
    found = {}
    for statement in REFUSED:
        *before, last = statement.split("; ")
        async with driver(url) as run:
            for one in before:
                await run(one)
            found[statement] = await told(run(last))
    assert found == REFUSED


@ALL
async def test_what_others_are_in_the_way_of(driver: Any, url: str) -> None:
    async with driver(url) as one, driver(url) as other:
        await one("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await one("SELECT count(*) FROM paid")
        await other("UPDATE paid SET amount = 6")
        assert await told(one("UPDATE paid SET amount = 7")) == ("retry", "SERIALIZATION_FAILURE")
        await one("ROLLBACK")
        await one("BEGIN")
        await one("UPDATE paid SET amount = 8")
        await other("SET lock_timeout = '50ms'")
        assert await told(other("UPDATE paid SET amount = 9")) == ("retry", "LOCK_TIMEOUT")
        await one("ROLLBACK")


@ALL
async def test_a_deadlock(driver: Any, url: str) -> None:
    async with driver(url) as one, driver(url) as other:
        await one("INSERT INTO paid VALUES ('o-3', 1)")
        await one("BEGIN")
        await other("BEGIN")
        await one("UPDATE paid SET amount = 2 WHERE id = 'o-1'")
        await other("UPDATE paid SET amount = 2 WHERE id = 'o-3'")
        results = await asyncio.gather(
            one("UPDATE paid SET amount = 3 WHERE id = 'o-3'"),
            other("UPDATE paid SET amount = 3 WHERE id = 'o-1'"),
            return_exceptions=True,
        )
        (error,) = [found for found in results if isinstance(found, Exception)]
        found = classify(error, {})
        assert (found.verdict, found.code) == ("retry", "DEADLOCK")
        await one("ROLLBACK")
        await other("ROLLBACK")


@ALL
async def test_a_connection_that_is_cut(driver: Any, url: str) -> None:
    """The transaction may have committed, for all that the client knows."""
    killer = await asyncpg.connect(url)
    try:
        async with driver(url) as run:
            await run("SET application_name = 'victim'")
            waiting = asyncio.ensure_future(told(run("SELECT pg_sleep(30)")))
            while not await killer.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name = 'victim' AND query LIKE '%pg_sleep%' AND state = 'active'"
            ):
                await asyncio.sleep(0.02)
            assert await asyncio.wait_for(waiting, 20) == ("unknown", "CONNECTION_LOST")
            verdict, _ = await told(run("SELECT 1"))
            assert verdict == "unknown"
    finally:
        await killer.close()


@pytest.mark.parametrize("driver", [by_asyncpg, by_sqlalchemy])
async def test_a_connection_that_ends_between_two_messages(driver: Any, url: str) -> None:
    """asyncpg tells that as an internal error of its own when it has not read the server's farewell yet."""
    killer = await asyncpg.connect(url)
    found = set()
    try:
        for _ in range(60):
            async with driver(url) as run:
                await run("SET application_name = 'between'")
                waiting = asyncio.ensure_future(told(run("SELECT pg_sleep(30)")))
                while not await killer.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name = 'between' AND query LIKE '%pg_sleep%' AND state = 'active'"
                ):
                    pass
                found.add(await asyncio.wait_for(waiting, 20))
    finally:
        await killer.close()
    assert found == {("unknown", "CONNECTION_LOST")}


@ALL
async def test_a_connection_that_was_never_made(driver: Any, url: str) -> None:
    server, _, _ = url.rpartition("/")

    async def connecting(to: str) -> None:
        async with driver(to) as run:
            await run("SELECT 1")

    assert await told(connecting("postgresql://x@127.0.0.1:1/x")) == ("not_sent", "CONNECT_FAILED")
    unresolved = await told(connecting("postgresql://x@nowhere.invalid/x"))
    assert unresolved == ("not_sent", "NAME_NOT_RESOLVED")
    nobody = f"postgresql://nobody{secrets.token_hex(3)}@{server.rpartition('@')[2]}/postgres"
    refused, missing = await told(connecting(nobody)), await told(connecting(f"{server}/nowhere"))
    if driver is by_psycopg:
        # libpq tells no more than that there is no connection.
        assert refused == missing == ("not_sent", "CONNECT_FAILED")
    else:
        assert (refused, missing) == (("fatal", "AUTH_FAILED"), ("fatal", "NO_SUCH_DATABASE"))


async def test_no_connection_of_the_pool_was_free(url: str) -> None:
    engine = create_async_engine(
        Settings(database_url=PostgresDsn(url)).sqlalchemy_url, pool_size=1, max_overflow=0, pool_timeout=0.2
    )
    try:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT 1"))
            with pytest.raises(PoolTimeout) as raised:
                async with engine.connect():
                    pass
    finally:
        await engine.dispose()
    found = classify(raised.value, {})
    assert (found.verdict, found.code) == ("not_sent", "POOL_TIMEOUT")
