"""A handler or step that ends its own transaction is told so, and nothing more is written in its name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from milepost.schemas.errors import UsageError
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database, raw_connection, require_same_transaction
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from tests.support.inbox import nothing_published

Act = Callable[[Transaction], Awaitable[None]]
TAKEN = text("INSERT INTO ledger VALUES ('taken')")


@pytest.fixture(params=["queue", "null"])
async def database(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    url = database_url.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(url, **({"poolclass": NullPool} if request.param == "null" else {}))
    at: dict[str, Any] = {"database_url": database_url}
    database = Database(Settings(**at), engine=engine)
    await database.open()
    await database.pool.execute("CREATE TABLE ledger (what text UNIQUE); INSERT INTO ledger VALUES ('taken')")
    try:
        yield database
    finally:
        await database.close()
        await engine.dispose()


async def commit(tx: Transaction) -> None:
    await tx.session.commit()


async def swallowed_commit(tx: Transaction) -> None:
    with suppress(UsageError):
        await tx.session.commit()


async def commit_under_a_savepoint(tx: Transaction) -> None:
    await tx.session.begin_nested()
    await tx.session.commit()


async def connection_commit(tx: Transaction) -> None:
    await (await tx.session.connection()).commit()


async def rollback(tx: Transaction) -> None:
    try:
        await tx.session.execute(TAKEN)
    except IntegrityError:
        await tx.session.rollback()


async def rollback_and_on(tx: Transaction) -> None:
    await tx.session.rollback()
    await tx.session.execute(text("SELECT 1"))


async def connection_rollback_and_on(tx: Transaction) -> None:
    connection = await tx.session.connection()
    await connection.rollback()
    await connection.execute(text("SELECT 1"))


async def close(tx: Transaction) -> None:
    await tx.session.close()


async def close_and_on(tx: Transaction) -> None:
    await tx.session.close()
    await tx.session.execute(text("SELECT 1"))


async def raw_rollback(tx: Transaction) -> None:
    await tx.connection.execute("ROLLBACK")


async def text_rollback(tx: Transaction) -> None:
    await tx.session.execute(text("ROLLBACK"))


ENDS: list[Act] = [
    commit,
    swallowed_commit,
    commit_under_a_savepoint,
    connection_commit,
    rollback,
    rollback_and_on,
    connection_rollback_and_on,
    close,
    close_and_on,
    raw_rollback,
    text_rollback,
]


@pytest.mark.parametrize("act", ENDS, ids=lambda act: act.__name__)
async def test_whoever_ends_its_transaction_is_refused_and_leaves_nothing(
    database: Database, act: Act
) -> None:
    with pytest.raises(UsageError) as caught:
        async with database.transaction(nothing_published) as tx:
            await tx.session.execute(text("INSERT INTO ledger VALUES ('effect')"))
            await act(tx)
            await require_same_transaction(tx)
    assert caught.value.code == "MP332"
    assert await database.pool.fetchval("SELECT count(*) FROM ledger WHERE what = 'effect'") == 0


async def test_publishing_after_the_end_is_refused(database: Database) -> None:
    with pytest.raises(UsageError) as caught:
        async with database.transaction(nothing_published) as tx:
            await tx.session.rollback()
            await raw_connection(tx, "publish()")
    assert caught.value.code == "MP332"


async def test_parts_that_may_fail_in_savepoints_are_no_end(database: Database) -> None:
    async with database.transaction(nothing_published) as tx:
        with suppress(IntegrityError):
            async with tx.session.begin_nested():
                await tx.session.execute(TAKEN)
        async with tx.session.begin_nested():
            await tx.session.execute(text("INSERT INTO ledger VALUES ('kept')"))
        await (await tx.session.begin_nested()).commit()
        async with tx.connection.transaction():
            await tx.connection.execute("INSERT INTO ledger VALUES ('raw')")
        await tx.session.flush()
        await require_same_transaction(tx)
    assert await database.pool.fetchval("SELECT count(*) FROM ledger") == 3


async def test_a_lost_connection_is_not_blamed_on_the_handler(database: Database) -> None:
    with pytest.raises(Exception) as caught:
        async with database.transaction(nothing_published) as tx:
            pid = tx.connection.get_server_pid()
            await database.pool.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            with suppress(Exception):
                await tx.session.execute(text("SELECT 1"))
            await require_same_transaction(tx)
            await tx.connection.execute("SELECT 1")
    assert getattr(caught.value, "code", None) != "MP332"


async def test_without_an_engine_the_driver_knows(database_url: str) -> None:
    at: dict[str, Any] = {"database_url": database_url}
    database = Database(Settings(**at))
    await database.open()
    try:
        for statement in ("COMMIT", "ROLLBACK"):
            with pytest.raises(UsageError) as caught:
                async with database.transaction(nothing_published) as tx:
                    await tx.connection.execute(statement)
                    await require_same_transaction(tx)
            assert caught.value.code == "MP332"
        async with database.transaction(nothing_published) as tx, tx.connection.transaction():
            await require_same_transaction(tx)
    finally:
        await database.close()


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "ledger"
    what: Mapped[str] = mapped_column(primary_key=True)


async def test_only_what_was_ended_beneath_a_session_costs_its_connection(database: Database) -> None:
    assert database._engine is not None
    if isinstance(database._engine.pool, NullPool):
        pytest.skip("each transaction has a connection of its own")

    async def failed_flush(tx: Transaction) -> None:
        tx.session.add(Row(what="taken"))
        await tx.session.flush()

    async def committed(tx: Transaction) -> None:
        await tx.session.begin_nested()
        await tx.session.execute(text("SELECT 1"))
        await tx.connection.execute("COMMIT")
        raise KeyError("what the function raised")

    pids = []
    for act, error in ((failed_flush, IntegrityError), (committed, KeyError), (failed_flush, IntegrityError)):
        with pytest.raises(error):
            async with database.transaction(nothing_published) as tx:
                pids.append(await tx.connection.fetchval("SELECT pg_backend_pid()"))
                await act(tx)
    assert pids[0] == pids[1] != pids[2]
    assert database._engine.pool.checkedout() == 0  # type: ignore[attr-defined]
