"""Connections that have no open transaction, cannot have one, or belong to the other function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from milepost import Milepost, Saga, UsageError, publish, publish_sync
from milepost.schemas.settings import Settings
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support import servers
from tests.support.outbox import Noted, connected
from tests.support.publishers import at

EVENT = Noted(key="a")


@pytest.fixture(scope="module")
def url(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    with servers.fresh_database(postgres_server, database_template) as found:
        yield found


async def nothing_stored(url: str) -> bool:
    async with connected(url) as (connection,):
        return bool(await connection.fetchval("SELECT count(*) = 0 FROM milepost.outbox"))


async def refuses(tx: Any, code: str, *words: str) -> None:
    with pytest.raises(UsageError) as raised:
        await publish(tx, EVENT)
    assert raised.value.code == code and all(word in raised.value.text for word in words), raised.value


def refuses_sync(tx: Any, code: str, *words: str) -> None:
    with pytest.raises(UsageError) as raised:
        publish_sync(tx, EVENT)
    assert raised.value.code == code and all(word in raised.value.text for word in words), raised.value


@pytest.mark.parametrize("autocommit", [True, False])
async def test_psycopg_without_a_transaction(url: str, autocommit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=autocommit) as connection:
        await refuses(connection, "MP301", "psycopg", "async with connection.transaction():")
        async with connection.transaction():
            pass
        await refuses(connection, "MP301")
    with psycopg.connect(url, autocommit=autocommit) as blocking:
        refuses_sync(blocking, "MP301", "psycopg", '"with connection.transaction():"')
    assert await nothing_stored(url)


async def test_psycopg_in_the_transaction_that_its_first_statement_opened(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT 1")
        await publish(connection, EVENT)
        await connection.rollback()
        await refuses(connection, "MP301")
    assert await nothing_stored(url)


async def test_psycopg_in_a_pipeline(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        async with connection.transaction(force_rollback=True), connection.pipeline():
            await connection.execute("SELECT 1")
            ids = await publish(connection, EVENT, EVENT, lock_key=True)
            found = await connection.execute("SELECT id FROM milepost.outbox ORDER BY seq")
            assert [row[0] for row in await found.fetchall()] == ids
    assert await nothing_stored(url)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sqlalchemy_without_a_transaction(url: str, driver: str) -> None:
    engine = create_async_engine(at(url, driver))
    async with AsyncSession(engine) as session:
        await refuses(session, "MP301", "session", "async with session.begin():")
        async with session.begin():
            await session.execute(text("SELECT 1"))
        await refuses(session, "MP301")
    async with engine.connect() as connection:
        await refuses(connection, "MP301", "async with connection.begin():")
    await engine.dispose()
    assert await nothing_stored(url)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_autocommit_is_no_transaction(url: str, driver: str) -> None:
    engine = create_async_engine(at(url, driver), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session, session.begin():
        await refuses(session, "MP301", "AUTOCOMMIT")
    async with engine.begin() as connection:
        await refuses(connection, "MP301", "AUTOCOMMIT")
    await engine.dispose()
    assert await nothing_stored(url)


async def test_the_same_without_awaiting(url: str) -> None:
    engine = create_engine(at(url, "psycopg"))
    with Session(engine) as session:
        refuses_sync(session, "MP301", "session", '"with session.begin():"')
    with engine.connect() as connection:
        refuses_sync(connection, "MP301", "connection", '"with connection.begin():"')
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.begin() as connection:
        refuses_sync(connection, "MP301", "AUTOCOMMIT")
    engine.dispose()
    assert await nothing_stored(url)


async def test_a_scoped_session_is_its_session(url: str) -> None:
    engine = create_engine(at(url, "psycopg"))
    scoped = scoped_session(sessionmaker(engine))
    refuses_sync(scoped, "MP301")
    with scoped.begin():
        publish_sync(scoped, EVENT)
        scoped.rollback()
    scoped.remove()
    engine.dispose()
    assert await nothing_stored(url)


async def test_the_other_function_is_named(url: str) -> None:
    blocking, awaiting = create_engine(at(url, "psycopg")), create_async_engine(at(url, "psycopg"))
    with Session(blocking) as session, psycopg.connect(url) as connection:
        await refuses(session, "MP349", "Session", "publish_sync()")
        await refuses(connection, "MP349", "psycopg Connection", "publish_sync()")
    async with AsyncSession(awaiting) as session, connected(url) as (raw,):
        refuses_sync(session, "MP349", "AsyncSession", "publish()")
        refuses_sync(raw, "MP349", "publish()")
    refuses_sync("session", "MP308", "str", "psycopg 3")
    await refuses("session", "MP308", "str")
    blocking.dispose()
    await awaiting.dispose()


async def test_start_takes_no_psycopg(url: str) -> None:
    class Place(BaseModel):
        id: str

    saga = Saga("order", version=1, input=Place, key=lambda o: o.id)

    @saga.tx_step()
    async def close(ctx: Any, tx: Any) -> None: ...

    saga.flow(close)
    values: dict[str, Any] = {"database_url": url}
    service = Milepost("shop", sagas=[saga], settings=Settings(**values))
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.transaction():
        tx: Any = connection
        with pytest.raises(UsageError, match=r"MP308 start\(\): AsyncConnection.*asyncpg"):
            await service.start(tx, saga, Place(id="o-1"))
    engine = create_async_engine(at(url, "psycopg"))
    async with AsyncSession(engine) as session, session.begin():
        with pytest.raises(UsageError, match=r"MP308 start.*psycopg"):
            await service.start(session, saga, Place(id="o-1"))
    await engine.dispose()


async def test_without_a_partition(postgres_server: servers.DatabaseServer, database_url: str) -> None:
    async with connected(database_url) as (connection,):
        for row in await connection.fetch(
            "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'milepost.outbox'::regclass"
        ):
            await connection.execute(f"DROP TABLE {row['name']}")
        with pytest.raises(asyncpg.PostgresError, match="MP410") as raised:
            await connection.fetchval("SELECT milepost.publish('orders', 'shop.order', '{}')")
        assert raised.value.sqlstate == "MP410"
    with psycopg.connect(database_url) as blocking:
        with pytest.raises(Exception, match=r"MP410.*milepost migrate"), blocking.transaction():
            publish_sync(blocking, EVENT)


async def test_a_pipeline_is_no_transaction(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        async with connection.pipeline():
            await connection.execute("SELECT 1")
            await refuses(connection, "MP301")
    assert await nothing_stored(url)
