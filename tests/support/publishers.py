"""Every way to publish, behind one face: a unit is an open transaction that commits when its block ends well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import psycopg
from milepost import Event, Tombstone, publish, publish_sync
from milepost.schemas.events import Publishable, key_of
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

FUNCTION = """
SELECT milepost.publish(topic => $1, type => $2, payload => $3::jsonb, key => $4, headers => $5::jsonb, tenant => $6,
                        version => $7, lock_key => $8, tombstone => $9)
"""


@dataclass
class Unit:
    """One open transaction.

    Attributes:
        tx: What the user would pass.
        execute: Runs a statement of the user's own in it.
        savepoint: Opens a nested transaction.
    """

    tx: Any
    publish: Callable[..., Any]
    execute: Callable[[str], Any]
    savepoint: Callable[[], AbstractAsyncContextManager[Any]]
    engine: Any = field(default=None, repr=False)


Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Unit]]


def at(url: str, driver: str) -> str:
    """The database for SQLAlchemy."""
    return url.replace("postgresql://", f"postgresql+{driver}://")


def _awaiting(tx: Any, execute: Callable[[str], Any], savepoint: Callable[[], Any]) -> Unit:
    async def call(*events: Publishable, **options: Any) -> list[UUID]:
        return await publish(tx, *events, **options)

    return Unit(tx, call, execute, savepoint)


def _blocking(tx: Any, execute: Callable[[str], Any], savepoint: Callable[[], Any]) -> Unit:
    async def call(*events: Publishable, **options: Any) -> list[UUID]:
        return await asyncio.to_thread(publish_sync, tx, *events, **options)

    async def run(sql: str) -> None:
        await asyncio.to_thread(execute, sql)

    return Unit(tx, call, run, lambda: threaded(savepoint()))


@asynccontextmanager
async def threaded(block: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    """A blocking context manager, entered and left in threads."""
    entered = await asyncio.to_thread(block.__enter__)
    try:
        yield entered
    except BaseException as error:
        await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__)
        raise
    await asyncio.to_thread(block.__exit__, None, None, None)


@asynccontextmanager
async def by_asyncpg(url: str, **options: Any) -> AsyncIterator[Unit]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(**options):
            yield _awaiting(connection, connection.execute, connection.transaction)
    finally:
        await connection.close()


@asynccontextmanager
async def by_function(url: str, **options: Any) -> AsyncIterator[Unit]:
    connection = await asyncpg.connect(url)

    async def call(*events: Publishable, lock_key: bool = False, **given: Any) -> list[UUID]:
        found = []
        for event in events:
            stone = isinstance(event, Tombstone)
            kind = event.event if isinstance(event, Tombstone) else type(event)
            spec = kind.milepost_spec
            key = event.key if isinstance(event, Tombstone) else key_of(event)
            body = event.model_dump_json() if isinstance(event, Event) else None
            arguments = [
                given.get("topic") or spec.topic,
                spec.type,
                body,
                key if given.get("key") is None else given["key"],
                json.dumps(given.get("headers") or {}),
                given.get("tenant", ""),
                spec.version,
                lock_key,
                stone,
            ]
            found.append(await connection.fetchval(FUNCTION, *arguments))
        return found

    try:
        async with connection.transaction(**options):
            yield Unit(connection, call, connection.execute, connection.transaction)
    finally:
        await connection.close()


def _sqlalchemy(driver: str, *, session: bool) -> Open:
    @asynccontextmanager
    async def opened(url: str, **options: Any) -> AsyncIterator[Unit]:
        engine = create_async_engine(at(url, driver), **options)
        try:
            if session:
                async with AsyncSession(engine) as found, found.begin():
                    unit = _awaiting(found, lambda sql: found.execute(text(sql)), found.begin_nested)
                    unit.engine = engine
                    yield unit
            else:
                async with engine.begin() as connection:
                    yield _awaiting(
                        connection, lambda sql: connection.execute(text(sql)), connection.begin_nested
                    )
        finally:
            await engine.dispose()

    return opened


def _sqlalchemy_sync(*, session: bool) -> Open:
    @contextmanager
    def block(engine: Any) -> Any:
        if session:
            with Session(engine) as found, found.begin():
                yield found
        else:
            with engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def opened(url: str, **options: Any) -> AsyncIterator[Unit]:
        engine = create_engine(at(url, "psycopg"), **options)
        try:
            async with threaded(block(engine)) as found:
                yield _blocking(found, lambda sql: found.execute(text(sql)), found.begin_nested)
        finally:
            engine.dispose()

    return opened


@asynccontextmanager
async def by_psycopg(url: str, **options: Any) -> AsyncIterator[Unit]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        if level := options.get("isolation"):
            await connection.set_isolation_level(psycopg.IsolationLevel[level.upper()])
        async with connection.transaction():
            yield _awaiting(connection, connection.execute, connection.transaction)


@asynccontextmanager
async def by_psycopg_sync(url: str, **options: Any) -> AsyncIterator[Unit]:
    def block() -> Any:
        connection = psycopg.connect(url, autocommit=True)
        if level := options.get("isolation"):
            connection.set_isolation_level(psycopg.IsolationLevel[level.upper()])
        return connection

    connection = await asyncio.to_thread(block)
    try:
        async with threaded(connection.transaction()):
            yield _blocking(connection, connection.execute, connection.transaction)
    finally:
        connection.close()


#: Every way, by name.
WAYS: dict[str, Open] = {
    "asyncpg": by_asyncpg,
    "session-asyncpg": _sqlalchemy("asyncpg", session=True),
    "connection-asyncpg": _sqlalchemy("asyncpg", session=False),
    "session-psycopg": _sqlalchemy("psycopg", session=True),
    "connection-psycopg": _sqlalchemy("psycopg", session=False),
    "psycopg": by_psycopg,
    "session-sync": _sqlalchemy_sync(session=True),
    "connection-sync": _sqlalchemy_sync(session=False),
    "psycopg-sync": by_psycopg_sync,
    "function": by_function,
}


def repeatable(way: str) -> dict[str, Any]:
    """Options under which a way opens a REPEATABLE READ transaction."""
    if way.startswith(("session", "connection")):
        return {"isolation_level": "REPEATABLE READ"}
    return {"isolation": "repeatable_read"}


def reads(event: Event, value: bytes) -> bool:
    """Whether bytes are the JSON of an event; PostgreSQL writes it with other spaces than pydantic."""
    return bool(json.loads(value) == json.loads(event.model_dump_json()))
