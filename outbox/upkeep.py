"""The upkeep role: partitions a week ahead, and those dropped that are no longer needed.

A waiting DROP or a plain DETACH would block every publish behind it, so partitions leave by DETACH CONCURRENTLY with
a lock timeout; one that was interrupted is finished at the next look.

From the first moment of a detach the relay does not see the partition, and what is committed to it then is never sent.
So a partition stays for as long as a transaction that inserted into it is open, however old. None comes later, because
a row goes to the partition of the instant at which it is inserted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ..schemas.errors import ConnectError
from ..schemas.ids import Clock, Randomness, SystemClock, SystemRandomness
from ..streams.database import Database, statement_cache
from ..streams.lifecycle import Health, Stop
from ..streams.migrate import PARTITION_DAYS
from ..streams.queries import Queries
from .lease import DATABASE_ERRORS
from .patience import Backoff, Trouble

logger = logging.getLogger("milepost")

_EVERY = 3600.0
_STATEMENT = 60.0
#: Fewer days of partitions than this are a matter for people.
_LOW_DAYS = 3


class Sql(Queries, file="upkeep.sql"):
    """Queries of this module."""

    make_partitions: str
    days_ahead: str
    interrupted_detaches: str
    old_partitions: str
    sent_below: str
    written_to: str
    write_needed: str
    write_detach: str
    write_finalize: str
    write_attach: str
    write_drop: str
    lock_timeout: str


class Upkeep:
    """Makes the outbox's, history's and audit's partitions, and drops the outbox's old ones.

    The database user must own the tables; several processes may do it at once.

    Args:
        database: Where; opened here if it is not yet.
        clock: For how long something has failed.
        randomness: Jitter of waits.
    """

    def __init__(
        self, database: Database, *, clock: Clock | None = None, randomness: Randomness | None = None
    ) -> None:
        self._database = database
        self._backoff = Backoff(randomness or SystemRandomness(), first=1.0, cap=300.0)
        self._trouble = Trouble(clock or SystemClock())
        self._days: int | None = None

    @property
    def name(self) -> str:
        """What `--roles` calls it."""
        return "upkeep"

    async def run(self, stop: Stop) -> None:
        """Look after everything at once and then every hour, until asked to stop."""
        while not stop.asked:
            try:
                await self._database.open()
                await self.tidy(stop)
            except asyncpg.InsufficientPrivilegeError as error:
                self._trouble.meet(
                    f"upkeep: this database user does not own the outbox ({error}). Run the role upkeep as the user "
                    "that ran `milepost migrate`, or run that daily."
                )
                await stop.wait(_EVERY)
            except (*DATABASE_ERRORS, ConnectError) as error:
                self._trouble.meet(f"upkeep: {str(error) or type(error).__name__}. Trying again.")
                await stop.wait(self._backoff.next())
            else:
                self._trouble.over()
                self._backoff.reset()
                await stop.wait(_EVERY)

    def health(self) -> Health:
        """Return how many days of partitions there are, and what is in the way."""
        if self._days is None:
            return Health(not self._trouble.text, self._trouble.text or "not looked yet")
        words = f"partitions for {self._days} days"
        detail = f"{words}; {self._trouble.text}" if self._trouble.text else words
        return Health(self._days >= _LOW_DAYS, detail)

    async def tidy(self, stop: Stop) -> None:
        """Do once what is due.

        Raises:
            PostgresError: Something could not be done now, such as a lock that was not had in time; doing it
                again later is safe.
        """
        async with self._alone() as connection:
            self._days = await connection.fetchval(Sql.days_ahead)
            await connection.execute(Sql.make_partitions, PARTITION_DAYS)
            self._days = await connection.fetchval(Sql.days_ahead)
            await self._drop_old(connection, stop)

    async def _drop_old(self, connection: asyncpg.Connection[Any], stop: Stop) -> None:
        for row in await connection.fetch(Sql.interrupted_detaches):
            await self._write(connection, Sql.write_finalize, row["relname"])
        for row in await connection.fetch(Sql.old_partitions, self._database.settings.keep_outbox):
            if stop.asked:
                return
            await self._drop(connection, row["name"], row["attached"])

    async def _drop(self, connection: asyncpg.Connection[Any], name: str, attached: bool) -> None:
        if attached:
            if await self._needed(connection, name):
                return
            await self._write(connection, Sql.write_detach, name)
        # What was inserted in the meantime is seen now, and nothing more can come.
        if await self._needed(connection, name):
            await self._write(connection, Sql.write_attach, name)
            return
        await self._write(connection, Sql.write_drop, name)
        logger.info("upkeep: dropped %s", name)

    async def _needed(self, connection: asyncpg.Connection[Any], name: str) -> bool:
        # In this order: whoever ends after the first look has committed before the second.
        if await connection.fetchval(Sql.written_to, name):
            return True
        sent_below = await connection.fetchval(Sql.sent_below)
        if sent_below is None:
            return True
        question = await connection.fetchval(Sql.write_needed, name, sent_below)
        return bool(await connection.fetchval(question, timeout=_STATEMENT))

    async def _write(self, connection: asyncpg.Connection[Any], statement: str, name: str) -> None:
        await connection.execute(await connection.fetchval(statement, name), timeout=_STATEMENT)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[asyncpg.Connection[Any]]:
        """A connection of its own, in autocommit as DETACH CONCURRENTLY demands."""
        settings = self._database.settings
        connection = await asyncpg.connect(
            settings.dsn, timeout=10.0, statement_cache_size=statement_cache(settings)
        )
        try:
            if settings.pooler == "none":
                await connection.execute(Sql.lock_timeout)
            yield connection
        finally:
            await connection.close(timeout=5.0)
