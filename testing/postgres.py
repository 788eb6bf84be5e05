"""The PostgreSQL server of this process's kits, and a throwaway database for each kit.

The server is the one of MILEPOST_TEST_DATABASE_URL; else that of MILEPOST_DATABASE_URL when it answers; else one is
started. A migrated template makes a new database cheap. Both last until `stop`, at the latest until the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import secrets
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from ..devstack.databases import answers, drop_database, make_database
from ..schemas.errors import ConnectError
from ..schemas.ids import SystemClock
from ..streams.database import CANNOT_CONNECT
from ..streams.migrate import migrate
from .reporting import PLACEHOLDER_DATABASE_URL
from .store import Setup, Sql

if TYPE_CHECKING:
    from ..devstack.postgres import Postgres

#: Names of databases begin with this; the hour in which they were made follows, in hexadecimal hours since 1970.
PREFIX = "milepost_kit_"
#: What is left of a test run that was killed is removed by a later one, after so many hours.
LEFT_OVER = 24
#: Nothing here has to survive a power cut.
_THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_HEX = re.compile(r"[0-9a-f]{1,8}")


@dataclass(frozen=True)
class _Server:
    """Where kits' databases live.

    Args:
        url: URL of one of its databases.
        template: Name of the database to copy.
        ours: The server, when it was started here.
    """

    url: str
    template: str
    ours: Postgres | None

    def stop(self) -> None:
        if self.ours is not None:
            self.ours.close()
            return
        with suppress(Exception):  # the server may be gone, and what is left there is removed by a later run
            asyncio.run(_drop(self.url, self.template))


class _State:
    server: _Server | None = None
    lock = threading.Lock()


@asynccontextmanager
async def throwaway_database() -> AsyncGenerator[str]:
    """Give the URL of a new migrated database; it is dropped at the end, with whoever is still connected.

    Raises:
        ConnectError: MP504 when no server is to be had.
    """
    server = await asyncio.to_thread(_server)
    name = _new_name()
    url = await asyncio.to_thread(make_database, server.url, name, server.template)
    try:
        yield url
    finally:
        await asyncio.to_thread(drop_database, server.url, name)


def stop() -> None:
    """Remove the template, and stop the server if it was started here."""
    with _State.lock:
        server, _State.server = _State.server, None
    if server is not None:
        atexit.unregister(stop)
        server.stop()


def _server() -> _Server:
    """Return this process's server; the first call finds or starts it."""
    with _State.lock:
        if _State.server is None:
            _State.server = _found()
            atexit.register(stop)
        return _State.server


def _found() -> _Server:
    known = _given()
    if known is not None:
        return _Server(known, _template(known), None)
    server = _started()
    try:
        return _Server(server.url(), _template(server.url()), server)
    except BaseException:
        server.close()
        raise


def _given() -> str | None:
    named = os.environ.get("MILEPOST_TEST_DATABASE_URL")
    if named:
        return named
    url = os.environ.get("MILEPOST_DATABASE_URL")
    return url if url and url != PLACEHOLDER_DATABASE_URL and answers(url) else None


def _started() -> Postgres:
    try:
        from ..devstack.errors import DevstackError  # noqa: PLC0415 - needs the packages of milepost[dev]
        from ..devstack.postgres import Postgres  # noqa: PLC0415
    except ImportError as error:
        raise _nowhere(f"{error.name} is not installed") from error
    server = Postgres(settings=_THROWAWAY)
    try:
        server.start()
    except DevstackError as error:
        raise _nowhere(str(error)) from error
    return server


def _template(url: str) -> str:
    name = f"{_new_name()}_template"
    try:
        _remove_left_over(url)
        made = make_database(url, name)
    except (*CANNOT_CONNECT, asyncpg.PostgresError) as error:
        raise _nowhere(f"{type(error).__name__}: {error}") from error
    try:
        asyncio.run(_prepare(made))
    except BaseException:
        drop_database(url, name)
        raise
    return name


def _hours() -> int:
    return int(SystemClock().now().timestamp()) // 3600


def _new_name() -> str:
    return f"{PREFIX}{_hours():x}_{secrets.token_hex(5)}"


def _remove_left_over(url: str) -> None:
    for name in asyncio.run(_databases(url)):
        made = name.removeprefix(PREFIX).split("_")[0]
        if _HEX.fullmatch(made) and int(made, 16) + LEFT_OVER < _hours():
            with suppress(asyncpg.PostgresError):  # another test run may be removing it just now
                drop_database(url, name)


async def _drop(url: str, name: str) -> None:
    """Drop a database without a thread, for there are none any more while the interpreter ends."""
    connection = await asyncpg.connect(url, timeout=5)
    try:
        await connection.execute(await connection.fetchval(Sql.drop_statement, name))
    finally:
        await connection.close(timeout=5)


async def _databases(url: str) -> list[str]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return [row["datname"] for row in await connection.fetch(Sql.kit_databases, f"{PREFIX}%")]
    finally:
        await connection.close(timeout=5)


async def _prepare(url: str) -> None:
    await migrate(url)
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(Setup.install)
    finally:
        await connection.close(timeout=5)


def _nowhere(reason: str) -> ConnectError:
    return ConnectError(
        "MP504",
        f"open_kit(): no PostgreSQL for a throwaway database: {reason}. Install milepost[dev], which starts "
        "one, or let MILEPOST_TEST_DATABASE_URL name a server on which databases may be created.",
    )
