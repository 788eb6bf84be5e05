"""Running statements in a user's open transaction, whichever driver it is on: asyncpg or psycopg, asynchronous or not.

Statements have $1 placeholders, which psycopg's raw cursors take too. psycopg is optional: its cursors are loaded when
somebody passes one of its connections.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import asyncpg

from ..schemas.errors import UsageError
from ..schemas.transaction import AnyTx, SyncTx
from .alchemy import is_async_connection, is_async_session, is_connection, is_scoped, is_session
from .database import OF_ASYNCPG, Sql, in_autocommit, not_begun, open_asyncpg, open_connection, raw_connection

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

Rows: TypeAlias = Sequence[Sequence[Any]]
#: In a pipeline psycopg waits for the server only where rows are fetched, and knows no count before.
_COUNTED = " RETURNING true"


class Run(Protocol):
    """Runs statements on a connection that is awaited."""

    async def __call__(self, sql: str, arguments: Sequence[Any]) -> Rows:
        """Run a statement with its arguments and return its rows."""
        ...

    async def count(self, sql: str, arguments: Sequence[Any]) -> int:
        """Run an INSERT, UPDATE or DELETE without RETURNING and return how many rows it wrote."""
        ...


class RunSync(Protocol):
    """Runs statements on a connection that blocks."""

    def __call__(self, sql: str, arguments: Sequence[Any]) -> Rows:
        """As `Run`."""
        ...

    def count(self, sql: str, arguments: Sequence[Any]) -> int:
        """As `Run`."""
        ...


async def run_in(tx: AnyTx, call: str) -> Run:
    """Return what runs statements in an open transaction.

    Args:
        tx: Session, connection or transaction of the caller.
        call: Name of the public function, for the error.

    Raises:
        UsageError: MP301 without an open transaction, MP306 after its handler, MP308 on another driver, MP332 when
            a handler has ended its transaction itself, MP349 for one that does not await.
    """
    found: Any = tx
    if isinstance(found, OF_ASYNCPG):
        return on_asyncpg(open_asyncpg(found, call))
    if is_session(found) or is_scoped(found) or is_connection(found) or _is_sync(found):
        raise _other_kind(call, type(found), "publish_sync", "does not await")
    if _is_async(found):
        run = on_psycopg(found)
        if _is_busy(found):
            await run(Sql.begin_now, ())
        _require_open(found, call)
        return run
    if is_async_session(found) or is_async_connection(found):
        connection = await open_connection(found, call)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        if _is_async(driver):
            if not _is_open(driver):
                await connection.exec_driver_sql(Sql.begin_now)
            if not _is_open(driver):
                raise in_autocommit(call)
            return on_psycopg(driver)
    return on_asyncpg(await raw_connection(found, call))


def run_sync_in(tx: SyncTx, call: str) -> RunSync:
    """Return what runs statements in an open transaction of a synchronous session or connection.

    Raises:
        UsageError: MP301 without an open transaction, MP308 on another driver than psycopg 3, MP349 for one that is to
            be awaited.
    """
    found: Any = tx() if is_scoped(tx) else tx
    if _is_sync(found):
        run = on_psycopg_sync(found)
        if _is_busy(found):
            run(Sql.begin_now, ())
        _require_open(found, call)
        return run
    if is_session(found) or is_connection(found):
        return _of_sqlalchemy(found, call)
    if (
        isinstance(found, OF_ASYNCPG)
        or is_async_session(found)
        or is_async_connection(found)
        or _is_async(found)
    ):
        raise _other_kind(call, type(found), "publish", "is to be awaited")
    raise _no_driver(call, type(found).__name__)


def on_asyncpg(connection: asyncpg.Connection[Any]) -> Run:
    """Return what runs statements on an asyncpg connection."""
    return _OnAsyncpg(connection)


def on_psycopg(connection: psycopg.AsyncConnection[Any]) -> Run:
    """Return what runs statements on an asynchronous psycopg connection."""
    return _OnPsycopg(connection)


def on_psycopg_sync(connection: psycopg.Connection[Any]) -> RunSync:
    """Return what runs statements on a synchronous psycopg connection."""
    return _OnPsycopgSync(connection)


class _OnAsyncpg:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def __call__(self, sql: str, arguments: Sequence[Any]) -> Rows:
        return await self._connection.fetch(sql, *arguments)

    async def count(self, sql: str, arguments: Sequence[Any]) -> int:
        said = await self._connection.execute(sql, *arguments)
        return int(said[said.rindex(" ") :])


class _OnPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def __call__(self, sql: str, arguments: Sequence[Any]) -> Rows:
        from psycopg import AsyncRawCursor  # noqa: PLC0415 - optional, and here already, for the connection is
        from psycopg.rows import tuple_row  # noqa: PLC0415

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), arguments)
            return await cursor.fetchall()

    async def count(self, sql: str, arguments: Sequence[Any]) -> int:
        return len(await self(sql + _COUNTED, arguments))


class _OnPsycopgSync:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def __call__(self, sql: str, arguments: Sequence[Any]) -> Rows:
        from psycopg import RawCursor  # noqa: PLC0415
        from psycopg.rows import tuple_row  # noqa: PLC0415

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql.encode(), arguments)
            return cursor.fetchall()

    def count(self, sql: str, arguments: Sequence[Any]) -> int:
        return len(self(sql + _COUNTED, arguments))


def _of_sqlalchemy(tx: Session | Connection, call: str) -> RunSync:
    if not tx.in_transaction():
        raise not_begun("session" if is_session(tx) else "connection", call, "with")
    connection = tx.connection() if is_session(tx) else tx
    driver: Any = connection.connection.driver_connection
    if not _is_sync(driver):
        raise _no_driver(call, f"SQLAlchemy with {connection.dialect.driver}")
    if not _is_open(driver):
        connection.exec_driver_sql(Sql.begin_now)
    if not _is_open(driver):
        raise in_autocommit(call)
    return on_psycopg_sync(driver)


def _is_async(tx: object) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    module: Any = sys.modules.get("psycopg")
    return module is not None and isinstance(tx, module.AsyncConnection)


def _is_sync(tx: object) -> TypeGuard[psycopg.Connection[Any]]:
    module: Any = sys.modules.get("psycopg")
    return module is not None and isinstance(tx, module.Connection)


def _is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether the server has said that a transaction is open; one that has failed says so at the next statement.

    A connection that was lost counts as open for the same reason.
    """
    status = connection.info.transaction_status
    return status in {status.INTRANS, status.INERROR, status.UNKNOWN}


def _is_busy(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether statements are still on their way, in a pipeline: only the answer to one says where they lead."""
    status = connection.info.transaction_status
    return status == status.ACTIVE


def _require_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], call: str) -> None:
    if _is_open(connection):
        return
    block = "async with" if _is_async(connection) else "with"
    raise UsageError(
        "MP301",
        f"{call}: this psycopg connection has no open transaction, so the event could be sent although your change is "
        f'not. Wrap both in "{block} connection.transaction():", or publish after your change.',
    )


def _other_kind(call: str, kind: type[Any], function: str, why: str) -> UsageError:
    return UsageError(
        "MP349",
        f"{call}: a {kind.__module__.partition('.')[0]} {kind.__name__} {why}. Call {function}() with it.",
    )


def _no_driver(call: str, found: str) -> UsageError:
    return UsageError(
        "MP308",
        f"{call}: {found} is no transaction that Milepost can write in. Pass a psycopg 3 connection, or a Session or "
        "Connection of an engine made with postgresql+psycopg://.",
    )
