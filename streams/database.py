"""The pool of a process, transactions for handlers, and the driver connection under a user's transaction."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from ..schemas.envelope import Envelope
from ..schemas.errors import ConnectError, UsageError
from ..schemas.masking import place_of
from ..schemas.settings import Settings
from ..schemas.transaction import AnyTx, Publisher, Transaction
from .alchemy import is_async_connection, is_async_session
from .guard import SessionGuard, ended_in_transaction, watch
from .queries import Queries
from .silence import notice_silence

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

#: What asyncpg raises when a server cannot be reached or will not let us in.
CANNOT_CONNECT = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.exceptions.ClientConfigurationError,
)


#: asyncpg's connections, as they are and from a pool.
OF_ASYNCPG = (asyncpg.Connection, PoolConnectionProxy)


class Sql(Queries, file="database.sql"):
    """Queries of this module."""

    begin_now: str
    isolation: str


class Database:
    """One asyncpg pool, and transactions on it or on the user's SQLAlchemy engine.

    Args:
        settings: Where the database is, and whether a pooler stands in front of it.
        engine: The user's engine; with it, handlers get a session.
        max_size: Largest number of pooled connections.
    """

    def __init__(self, settings: Settings, *, engine: AsyncEngine | None = None, max_size: int = 10) -> None:
        self._settings = settings
        self._engine = engine
        self._max_size = max_size
        self._pool: asyncpg.Pool[Any] | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def settings(self) -> Settings:
        """The settings this was made with."""
        return self._settings

    @property
    def pool(self) -> asyncpg.Pool[Any]:
        """The open pool.

        Raises:
            ConnectError: MP503 before `open` or after `close`.
        """
        if self._pool is None:
            raise ConnectError("MP503", "the database pool is not open. Await Database.open() first.")
        return self._pool

    async def open(self) -> None:
        """Open the pool; doing it twice, even at once, is harmless.

        Raises:
            ConnectError: MP501 when the server cannot be reached.
        """
        async with self._changing():
            if self._pool is None:
                self._pool = await self._new_pool()

    async def close(self) -> None:
        """Close the pool; connections that do not come back within five seconds are cut."""
        async with self._changing():
            pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(5.0):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    def transaction(
        self, publisher: Publisher, *, envelope: Envelope | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a READ COMMITTED transaction that commits when the block ends well.

        Args:
            publisher: What `Transaction.publish` calls.
            envelope: The event being handled, if any.
        """
        if self._engine is None:
            return self._pooled(publisher, envelope)
        return self._in_session(self._engine, publisher, envelope)

    def _changing(self) -> asyncio.Lock:
        """The lock under which the pool comes and goes; a lock belongs to one loop, and a program may run several."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _new_pool(self) -> asyncpg.Pool[Any]:
        dsn = self._settings.dsn
        try:
            return await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=self._max_size,
                statement_cache_size=statement_cache(self._settings),
                timeout=10.0,
                init=notice_silence,
            )
        except CANNOT_CONNECT as error:
            raise cannot_reach(dsn, error) from error

    @asynccontextmanager
    async def _pooled(self, publisher: Publisher, envelope: Envelope | None) -> AsyncGenerator[Transaction]:
        async with self.pool.acquire() as proxy, proxy.transaction(isolation="read_committed"):
            connection = cast("asyncpg.Connection[Any]", proxy)
            tx = Transaction(connection, publisher, None, envelope, _ended=watch(proxy))
            try:
                yield tx
            finally:
                tx.closed = True

    @asynccontextmanager
    async def _in_session(
        self, engine: AsyncEngine, publisher: Publisher, envelope: Envelope | None
    ) -> AsyncGenerator[Transaction]:
        from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415 - whoever made the engine has it

        async with AsyncSession(engine, expire_on_commit=False) as session:
            connection = await session.connection(execution_options={"isolation_level": "READ COMMITTED"})
            driver = await _begun(connection, "transaction()")
            guard = SessionGuard(session, connection, driver)
            tx = Transaction(driver, publisher, session, envelope, _ended=guard.ended)
            try:
                yield tx
            except BaseException:
                if guard.ended_beneath():
                    # Savepoints are gone with the transaction; closing the session would fail at them, and that
                    # error would hide this one. What the function left the connection in is of no more use.
                    with suppress(Exception):
                        await connection.invalidate()
                raise
            finally:
                tx.closed = True
            guard.may_commit = True
            await session.commit()


def statement_cache(settings: Settings) -> int:
    """Size of asyncpg's cache of prepared statements: none behind a transaction-mode pooler."""
    return 0 if settings.pooler == "transaction" else 100


def cannot_reach(dsn: str, error: BaseException) -> ConnectError:
    """Make the error that says which PostgreSQL cannot be reached, why, and what to do."""
    name = urlsplit(dsn).path.lstrip("/") or "of the same name"
    reason = str(error).rstrip(".") or type(error).__name__
    fix = "Check that it runs and that MILEPOST_DATABASE_URL names it; `milepost dev` starts one."
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not accepted ({error.verify_message})"
        fix = "Check sslrootcert and sslmode in MILEPOST_DATABASE_URL, and that it names the certificate's host."
    elif isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        fix = "Check user and password in MILEPOST_DATABASE_URL, and what pg_hba.conf asks for."
    return ConnectError("MP501", f"PostgreSQL at {place_of(dsn)}, database {name}: {reason}. {fix}")


async def raw_connection(tx: AnyTx, call: str) -> asyncpg.Connection[Any]:
    """Return the asyncpg connection under an open transaction.

    Args:
        tx: Session, connection or transaction of the caller.
        call: Name of the public function, for the error.

    Raises:
        UsageError: MP301 without an open transaction, MP306 after its handler, MP308 on another driver, MP332 when
            a handler has ended its transaction itself.
    """
    if isinstance(tx, Transaction):
        connection = tx.connection
        await require_same_transaction(tx)
        return connection
    if is_async_session(tx) or is_async_connection(tx):
        return await _of_sqlalchemy(tx, call)
    if not isinstance(tx, OF_ASYNCPG):
        raise _wrong_driver(call, type(tx).__name__)
    return open_asyncpg(tx, call)


def open_asyncpg(
    tx: asyncpg.Connection[Any] | PoolConnectionProxy[Any], call: str
) -> asyncpg.Connection[Any]:
    """Return an asyncpg connection that has an open transaction.

    Raises:
        UsageError: MP301 without one.
    """
    if not tx.is_in_transaction():
        raise UsageError(
            "MP301",
            f"{call}: this asyncpg connection has no open transaction, so the event could be sent although "
            'your change is not. Wrap both in "async with connection.transaction():".',
        )
    return cast("asyncpg.Connection[Any]", tx)


async def require_same_transaction(tx: Transaction) -> None:
    """Refuse to go on when the transaction of a handler or step is no longer the one that was begun for it.

    Call it after the user's code and before anything that is to commit together with it. No statement is sent.

    Raises:
        UsageError: MP332 when the user's code has committed, rolled back or closed it.
    """
    if tx._ended is not None and tx._ended():
        raise ended_in_transaction()


async def require_read_committed(connection: asyncpg.Connection[Any], call: str) -> None:
    """Refuse a transaction whose snapshot is older than the locks it takes.

    Raises:
        UsageError: MP307 at REPEATABLE READ or SERIALIZABLE.
    """
    check_level(await connection.fetchval(Sql.isolation), call)


def check_level(level: str, call: str) -> None:
    """Refuse an isolation level other than READ COMMITTED.

    Raises:
        UsageError: MP307.
    """
    if level != "read committed":
        raise UsageError(
            "MP307",
            f"{call}: this transaction is {level.upper()}, and its snapshot would not see what the lock "
            "waited for. Use READ COMMITTED for it, which is PostgreSQL's default.",
        )


async def _of_sqlalchemy(tx: AsyncSession | AsyncConnection, call: str) -> asyncpg.Connection[Any]:
    return await _begun(await open_connection(tx, call), call)


async def open_connection(tx: AsyncSession | AsyncConnection, call: str) -> AsyncConnection:
    """Return the connection of a SQLAlchemy session or connection whose transaction was begun.

    Raises:
        UsageError: MP301.
    """
    if not tx.in_transaction():
        raise not_begun("session" if is_async_session(tx) else "connection", call, "async with")
    return await tx.connection() if is_async_session(tx) else tx


def not_begun(kind: Literal["session", "connection"], call: str, block: str) -> UsageError:
    """Make the error of a SQLAlchemy session or connection without an open transaction."""
    return UsageError(
        "MP301",
        f"{call}: this SQLAlchemy {kind} has no open transaction, so the event could be sent although your "
        f'change is not. Wrap both in "{block} {kind}.begin():".',
    )


def in_autocommit(call: str) -> UsageError:
    """Make the error of a SQLAlchemy connection that never opens a transaction."""
    return UsageError(
        "MP301",
        f"{call}: this SQLAlchemy connection is in AUTOCOMMIT, so there is no open transaction and the "
        "event could be sent although your change is not. Use an engine without "
        'isolation_level="AUTOCOMMIT".',
    )


async def _begun(connection: AsyncConnection, call: str) -> asyncpg.Connection[Any]:
    driver = (await connection.get_raw_connection()).driver_connection
    if not isinstance(driver, asyncpg.Connection):
        raise _wrong_driver(call, f"SQLAlchemy with {connection.dialect.driver}")
    if not driver.is_in_transaction():
        await connection.exec_driver_sql(Sql.begin_now)
    if not driver.is_in_transaction():
        raise in_autocommit(call)
    return driver


def _wrong_driver(call: str, found: str) -> UsageError:
    return UsageError(
        "MP308",
        f"{call}: {found} is no transaction that Milepost can write in. Pass an asyncpg connection, or an "
        "AsyncSession or AsyncConnection of an engine made with postgresql+asyncpg://.",
    )
