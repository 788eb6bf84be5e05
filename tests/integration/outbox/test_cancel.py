"""A publishing task cancelled at any await leaves nothing behind in the pool: no open transaction, no lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import asyncpg
from milepost.outbox.publish import publish
from milepost.streams.database import Database
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.support.outbox import Noted, connected, settings
from tests.support.waiting import until


class CancelledAt:
    """Cancels the task that awaits it at the nth point at which the inner coroutine waits.

    Attributes:
        points: How often it has waited.
    """

    def __init__(self, inner: Coroutine[Any, Any, None], at: int) -> None:
        self.inner = inner
        self.at = at
        self.points = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        steps = self.inner.__await__()
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            try:
                waiting = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration:
                return
            self.points += 1
            if self.points == self.at:
                task.cancel()
            thrown = None
            try:
                sent = yield waiting
            except BaseException as error:
                thrown = error


async def cancel_everywhere(work: Callable[[], Coroutine[Any, Any, None]], most: int = 80) -> int:
    """Run the work once per point at which it can be cancelled; returns the number of points."""
    for at in range(1, most):

        async def one(point: int = at) -> int:
            cancelled = CancelledAt(work(), point)
            await cancelled
            return cancelled.points

        try:
            points = await asyncio.wait_for(asyncio.create_task(one()), 20)
        except asyncio.CancelledError:
            continue
        if points < at:
            return points
    raise AssertionError(f"more than {most} points")


async def check_clean(url: str) -> None:
    async with connected(url) as (watch,):

        async def nobody_is_left() -> bool:
            open_ones = await watch.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%'"
            )
            locks = await watch.fetchval(
                "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
                " WHERE datname = current_database() AND locktype = 'advisory'"
            )
            return bool(open_ones == locks == 0)

        await until(nobody_is_left, what="no transaction or lock to be left")


async def count(url: str) -> int:
    async with connected(url) as (watch,):
        found = await watch.fetchval("SELECT count(*) FROM milepost.outbox WHERE aggregateid = 'after'")
        return int(found)


async def test_a_pool_of_asyncpg(database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=2, max_size=2) as pool:

        async def work() -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("UPDATE milepost.topic SET compacted = false")
                await publish(connection, Noted(key="k"), lock_key=True)

        assert await cancel_everywhere(work) >= 5
        await check_clean(database_url)
        for _ in range(100):
            async with pool.acquire() as connection, connection.transaction():
                await publish(connection, Noted(key="after"), lock_key=True)
        assert await count(database_url) == 100, "every later commit is seen elsewhere"


async def test_an_engine_of_sqlalchemy(database_url: str) -> None:
    engine = create_async_engine(
        database_url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=2, max_overflow=0
    )
    database = Database(settings(database_url), engine=engine)

    async def publisher(tx: Any, events: Any) -> Any:
        return await publish(tx, *events)

    async def by_session() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(text("UPDATE milepost.topic SET compacted = false"))
            await publish(session, Noted(key="k"), lock_key=True)

    async def by_transaction() -> None:
        async with database.transaction(publisher) as tx:
            await tx.session.execute(text("UPDATE milepost.topic SET compacted = false"))
            await publish(tx, Noted(key="k"), lock_key=True)

    try:
        for work in (by_session, by_transaction):
            assert await cancel_everywhere(work) >= 5
            await check_clean(database_url)
        for _ in range(50):
            async with AsyncSession(engine) as session, session.begin():
                await publish(session, Noted(key="after"), lock_key=True)
            async with database.transaction(publisher) as tx:
                await tx.publish(Noted(key="after"))
        assert await count(database_url) == 100, "every later commit is seen elsewhere"
    finally:
        await engine.dispose()
