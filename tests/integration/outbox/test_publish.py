"""Publishing through every kind of transaction: with it or not at all, and refused where it could not be so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
import pytest
from milepost.outbox.publish import publish
from milepost.schemas.errors import MilepostError, StateError, UsageError
from milepost.schemas.transaction import AnyTx, Transaction
from milepost.streams.database import Database
from milepost.streams.tracing import span, valid_traceparent
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.support.outbox import Loose, Noted, connected, settings
from tests.support.waiting import until

Open: TypeAlias = Callable[[str], AbstractAsyncContextManager[AnyTx]]


def engine_of(url: str, **options: Any) -> Any:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), **options)


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[AnyTx]:
    async with connected(url) as (connection,), connection.transaction():
        yield connection


@asynccontextmanager
async def by_pool(url: str) -> AsyncIterator[AnyTx]:
    async with (
        asyncpg.create_pool(url, min_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def by_session(url: str) -> AsyncIterator[AnyTx]:
    engine = engine_of(url)
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_connection(url: str) -> AsyncIterator[AnyTx]:
    engine = engine_of(url)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


async def publisher(tx: Transaction, events: tuple[Any, ...]) -> Any:
    return await publish(tx, *events)


@asynccontextmanager
async def by_transaction(url: str) -> AsyncIterator[AnyTx]:
    database = Database(settings(url))
    await database.open()
    try:
        async with database.transaction(publisher) as tx:
            yield tx
    finally:
        await database.close()


@asynccontextmanager
async def by_session_transaction(url: str) -> AsyncIterator[AnyTx]:
    engine = engine_of(url)
    try:
        async with Database(settings(url), engine=engine).transaction(publisher) as tx:
            await tx.session.execute(text("SELECT 1"))
            yield tx
    finally:
        await engine.dispose()


EVERY = pytest.mark.parametrize(
    "opened", [by_asyncpg, by_pool, by_session, by_connection, by_transaction, by_session_transaction]
)


async def stored(url: str) -> list[asyncpg.Record]:
    async with connected(url) as (connection,):
        return await connection.fetch("SELECT * FROM milepost.outbox ORDER BY seq")


@EVERY
async def test_committed_with_the_transaction(database_url: str, opened: Open) -> None:
    async with opened(database_url) as tx:
        ids = await publish(
            tx, Noted(key="a", n=1), Noted(key="b"), Loose(), tenant="acme", headers={"x": "ü"}
        )
        assert await stored(database_url) == []
    rows = await stored(database_url)
    assert [row["id"] for row in rows] == ids
    assert [(row["topic"], row["aggregateid"], row["tenant"]) for row in rows] == [
        ("noted", "a", "acme"),
        ("noted", "b", "acme"),
        ("loose", None, "acme"),
    ]
    assert Noted.model_validate_json(rows[0]["payload"]) == Noted(key="a", n=1)


@EVERY
async def test_gone_with_the_transaction(database_url: str, opened: Open) -> None:
    with pytest.raises(RuntimeError, match="no"):
        async with opened(database_url) as tx:
            await publish(tx, Noted(key="a"), lock_key=True)
            raise RuntimeError("no")
    assert await stored(database_url) == []


@EVERY
async def test_a_refusal_leaves_the_transaction_usable(database_url: str, opened: Open) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute("INSERT INTO milepost.topic (name, missing) VALUES ('loose', true)")
    async with opened(database_url) as tx:
        with pytest.raises(UsageError, match="MP313"):
            await publish(tx, Noted(key="a"), Loose())
        await publish(tx, Noted(key="b"))
    assert [row["aggregateid"] for row in await stored(database_url)] == ["b"]


async def test_a_savepoint_takes_only_its_own_with_it(database_url: str) -> None:
    async with connected(database_url) as (connection,), connection.transaction():
        await publish(connection, Noted(key="outer"))
        with pytest.raises(RuntimeError):
            async with connection.transaction():
                await publish(connection, Noted(key="inner"))
                raise RuntimeError
    engine = engine_of(database_url)
    async with AsyncSession(engine) as session, session.begin():
        with pytest.raises(RuntimeError):
            async with session.begin_nested():
                await publish(session, Noted(key="inner"))
                raise RuntimeError
        await publish(session, Noted(key="second"))
    await engine.dispose()
    assert [row["aggregateid"] for row in await stored(database_url)] == ["outer", "second"]


async def refused(call: Any, code: str, *words: str) -> MilepostError:
    with pytest.raises(MilepostError) as raised:
        await call
    assert raised.value.code == code
    assert all(word in raised.value.text for word in words), raised.value.text
    return raised.value


async def test_without_a_transaction(database_url: str) -> None:
    event = Noted(key="a")
    async with connected(database_url) as (connection,):
        error = await refused(publish(connection, event), "MP301")
        assert error.text == (
            "publish(): this asyncpg connection has no open transaction, so the event could be sent although your "
            'change is not. Wrap both in "async with connection.transaction():".'
        )
    engine = engine_of(database_url)
    async with AsyncSession(engine) as session:
        await refused(publish(session, event), "MP301", "session", "async with session.begin():")
        async with session.begin():
            pass
        await refused(publish(session, event), "MP301", "session")
    async with engine.connect() as connection:
        await refused(publish(connection, event), "MP301", "connection.begin()")
    await engine.dispose()
    assert await stored(database_url) == []


async def test_autocommit_is_no_transaction(database_url: str) -> None:
    engine = engine_of(database_url, isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session, session.begin():
        await refused(publish(session, Noted(key="a")), "MP301", "AUTOCOMMIT")
    async with engine.begin() as connection:
        await refused(publish(connection, Noted(key="a")), "MP301", "AUTOCOMMIT")
    await engine.dispose()
    assert await stored(database_url) == []


async def test_after_the_handler(database_url: str) -> None:
    async with by_transaction(database_url) as tx:
        pass
    await refused(publish(tx, Noted(key="a")), "MP306")


async def test_something_else_than_a_transaction() -> None:
    wrong: Any = "session"
    await refused(publish(wrong, Noted(key="a")), "MP308", "str")


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
async def test_a_lock_needs_read_committed(database_url: str, level: Any) -> None:
    async with connected(database_url) as (connection,):
        async with connection.transaction(isolation=level):
            await refused(publish(connection, Noted(key="a"), lock_key=True), "MP307", level.upper()[:6])
            await publish(connection, Noted(key="plain"))
    assert [row["aggregateid"] for row in await stored(database_url)] == ["plain"]


async def test_topics_that_are_known_are_checked(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute(
            "INSERT INTO milepost.topic (name, compacted, max_bytes, missing)"
            " VALUES ('noted', true, 200, false), ('other', true, 9, false), ('nowhere', false, NULL, true)"
        )
        async with connection.transaction():
            await refused(
                publish(connection, Noted(key="a"), topic="nowhere"), "MP313", "nowhere", "noted, other"
            )
            await refused(publish(connection, Loose(), topic="noted"), "MP314", "compacted", "key=")
            await refused(publish(connection, Noted(key="a", text="x" * 300)), "MP312", "200", "'noted'")
            await publish(connection, Noted(key="a"))
            await publish(connection, Loose(), topic="noted", key="now it has one")
            await publish(connection, Noted(key="a"), topic="made-a-second-ago")
    assert len(await stored(database_url)) == 3


async def test_without_a_partition(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        for row in await connection.fetch(
            "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'milepost.outbox'::regclass"
        ):
            await connection.execute(f"DROP TABLE {row['name']}")
        with pytest.raises(StateError, match=r"MP410.*milepost migrate"):
            async with connection.transaction():
                await publish(connection, Noted(key="a"))


async def test_nothing_to_publish(database_url: str) -> None:
    async with by_asyncpg(database_url) as tx:
        assert await publish(tx) == []


async def test_the_trace_travels_with_the_row(database_url: str) -> None:
    with span("request") as current:
        trace = f"{current.get_span_context().trace_id:032x}"
        async with by_asyncpg(database_url) as tx:
            await publish(tx, Noted(key="a"))
    async with connected(database_url) as (connection,):
        parent = await connection.fetchval("SELECT headers ->> 'traceparent' FROM milepost.outbox")
    assert valid_traceparent(parent) and parent.split("-")[1] == trace


async def test_a_lock_orders_two_transactions(database_url: str) -> None:
    async with connected(database_url, 3) as (first, second, watch):
        async with first.transaction():
            await publish(first, Noted(key="k", n=1), lock_key=True)
            waiting = second.transaction()
            await waiting.start()
            task = asyncio.create_task(publish(second, Noted(key="k", n=2), lock_key=True))
            await until(
                lambda: watch.fetchval(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                ),
                what="the second to wait for the lock",
            )
            async with watch.transaction():
                await publish(watch, Noted(key="other"), lock_key=True)
        await task
        await waiting.commit()
    rows = await stored(database_url)
    assert [(row["aggregateid"], Noted.model_validate_json(row["payload"]).n) for row in rows] == [
        ("k", 1),
        ("other", 0),
        ("k", 2),
    ]


async def test_many_at_once_cannot_deadlock(database_url: str) -> None:
    keys = [f"k{n}" for n in range(6)]

    async def writer(connection: asyncpg.Connection[Any], shift: int) -> None:
        for _ in range(20):
            async with connection.transaction():
                order = keys[shift:] + keys[:shift]
                await publish(connection, *[Noted(key=key) for key in order], lock_key=True)

    async with connected(database_url, 4) as connections:
        await asyncio.gather(*(writer(connection, n) for n, connection in enumerate(connections)))
    assert len(await stored(database_url)) == 4 * 20 * 6
