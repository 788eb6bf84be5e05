"""Bring a database to this version of the schema: numbered SQL files, forward only."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import asyncpg

from ..schemas.errors import StartError
from .database import CANNOT_CONNECT, cannot_reach
from .queries import Queries

_NAME = re.compile(r"(\d{4})_(pre|post)_(\w+)\.sql")
#: Days for which partitions are made in advance; the upkeep role makes them daily, `check` warns below three.
PARTITION_DAYS = 7


class Sql(Queries, file="migrate.sql"):
    """Queries of this module."""

    lock_migrations: str
    has_migrations: str
    load_version: str
    record_migration: str
    make_partitions: str


@dataclass(frozen=True, slots=True)
class MigrationFile:
    """One file of schemas/sql/migrations.

    Attributes:
        number: Its place in the order, from 1.
        phase: "pre" runs before new code is rolled out, "post" after old code is gone.
    """

    number: int
    phase: str
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Migration:
    """What `migrate` did, or with `dry_run` would do.

    Attributes:
        files: Names of the files that were run, in order.
    """

    from_version: int
    to_version: int
    files: list[str]


def migration_files() -> list[MigrationFile]:
    """Return the package's migrations in order.

    Raises:
        StartError: MP210 when the numbers are not 1, 2, 3 … without gap.
    """
    room = files(__package__.rpartition(".")[0] + ".schemas") / "sql" / "migrations"
    found = [
        MigrationFile(int(match[1]), match[2], entry.name, entry.read_text())
        for entry in room.iterdir()
        if (match := _NAME.fullmatch(entry.name))
    ]
    found.sort(key=lambda file: file.number)
    if [file.number for file in found] != list(range(1, len(found) + 1)) or not found:
        raise StartError(
            "MP210", "the package's migrations are not numbered without gap. Install milepost anew."
        )
    return found


async def current_version(database_url: str) -> int:
    """Return the number of the last migration a database has had, 0 for none.

    Raises:
        ConnectError: MP501 when the server cannot be reached.
    """
    async with _connected(database_url) as connection:
        return await _version(connection)


async def migrate(database_url: str, *, to: int | None = None, dry_run: bool = False) -> Migration:
    """Run the missing migrations in one transaction, then make partitions for the coming days.

    Two at once are safe: the second waits, and then has nothing to do.

    Args:
        database_url: PostgreSQL, as postgresql://…; its user should own the schema.
        to: Last migration to run; None for all.
        dry_run: Only say what would be done.

    Raises:
        StartError: MP204 when the database is newer than this package, MP205 when `to` lies behind it or is
            unknown.
        ConnectError: MP501 when the server cannot be reached.
    """
    known = migration_files()
    async with _connected(database_url) as connection:
        async with connection.transaction():
            await connection.execute(Sql.lock_migrations)
            before = await _version(connection)
            missing = _missing(known, before, to)
            for file in missing if not dry_run else []:
                await connection.execute(file.sql)
                await connection.execute(Sql.record_migration, file.number, file.name)
        after = missing[-1].number if missing else before
        if after and not dry_run:
            await connection.execute(Sql.make_partitions, PARTITION_DAYS)
    return Migration(before, after, [file.name for file in missing])


def _missing(known: list[MigrationFile], before: int, to: int | None) -> list[MigrationFile]:
    newest = known[-1].number
    if before > newest:
        raise StartError(
            "MP204",
            f"migrate: the database's schema is version {before}, and this milepost knows only {newest}. "
            "Install the newer milepost; schemas never go back.",
        )
    target = newest if to is None else to
    if not before <= target <= newest:
        raise StartError(
            "MP205",
            f"migrate: cannot go to version {target}. The database has {before}, this milepost knows up to "
            f"{newest}, and schemas never go back.",
        )
    return [file for file in known if before < file.number <= target]


async def _version(connection: asyncpg.Connection[Any]) -> int:
    if not await connection.fetchval(Sql.has_migrations):
        return 0
    return int(await connection.fetchval(Sql.load_version))


@asynccontextmanager
async def _connected(database_url: str) -> AsyncGenerator[asyncpg.Connection[Any]]:
    dsn = "postgresql://" + database_url.partition("://")[2]  # a SQLAlchemy URL is welcome too
    try:
        connection = await asyncpg.connect(dsn, timeout=10.0, statement_cache_size=0)
    except CANNOT_CONNECT as error:
        raise cannot_reach(dsn, error) from error
    try:
        yield connection
    finally:
        await connection.close(timeout=5.0)
