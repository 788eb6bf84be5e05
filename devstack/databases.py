"""Databases on a running PostgreSQL server, wherever it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from .ports import run_apart

T = TypeVar("T")


def at(url: str, database: str) -> str:
    """Return the URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def answers(url: str) -> bool:
    """Tell whether the server takes a query within five seconds."""

    async def ask(connection: asyncpg.Connection) -> bool:
        return bool(await connection.fetchval("SELECT 1") == 1)

    try:
        return on_database(url, ask)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False


def make_database(url: str, name: str, template: str | None = None) -> str:
    """Create a database.

    Args:
        url: any database of the server.
        name: the new one's name.
        template: a database to copy; nobody may be connected to it.

    Returns:
        Its URL.
    """
    command = f"CREATE DATABASE {_quoted(name)}"
    if template:
        command += f" TEMPLATE {_quoted(template)} STRATEGY wal_log"
    on_database(url, lambda connection: connection.execute(command))
    return at(url, name)


def drop_database(url: str, name: str) -> None:
    """Drop a database, ending its sessions; nothing happens when it is not there.

    Args:
        url: another database of the same server.
        name: the one to drop.
    """
    on_database(
        url, lambda connection: connection.execute(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")
    )


def has_database(url: str, name: str) -> bool:
    """Tell whether the server has a database of that name."""

    async def ask(connection: asyncpg.Connection) -> bool:
        return bool(await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", name))

    return on_database(url, ask)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def on_database(url: str, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    """Do something on a connection of its own, also from within a running event loop.

    Args:
        url: the database.
        work: what to do; its result is returned.
    """

    async def visit() -> T:
        connection = await asyncpg.connect(url, timeout=5, command_timeout=60)
        try:
            return await work(connection)
        finally:
            await connection.close(timeout=5)

    return run_apart(visit)
