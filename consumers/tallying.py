"""The upkeep role's part that counts what has happened, by five minutes.

The overview of a database with a million runs reads a few thousand such rows instead. A pass counts the buckets that
have ended since the last one, in one transaction with the mark that says how far it came: a process that is killed has
counted nothing, and two at once count once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from ..schemas.errors import ConnectError
from ..schemas.ids import Clock, SystemClock
from ..streams.database import Database
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .engine import DATABASE_ERRORS

logger = logging.getLogger("milepost")

#: A bucket is counted once it ended this long ago: what was written in it has been committed by then.
SETTLED = timedelta(minutes=1)
_LOOK = 20.0
_STATEMENT = 120.0


class Sql(Queries, file="tally.sql"):
    """Queries of this module."""

    alone: str
    place: str
    count: str
    mark: str
    forget: str


class Tallying:
    """Counts what has happened; several processes may do it at once.

    Args:
        database: Where; opened here if it is not yet.
        clock: Taken as every part of the role takes it.
    """

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._trouble = ""
        self._upto: datetime | None = None

    @property
    def name(self) -> str:
        """What health calls it; `--roles upkeep` runs it."""
        return "tally"

    def health(self) -> Health:
        """Return how far it has come; a count that is late harms nobody but who reads it, so that is no alarm."""
        return Health(True, self._trouble or f"counted up to {self._upto or 'nothing yet'}")

    async def run(self, stop: Stop) -> None:
        """Count at once and then again and again, until asked to stop."""
        while not stop.asked:
            try:
                await self._database.open()
                await self.turn()
                self._trouble = ""
            except (*DATABASE_ERRORS, ConnectError) as error:
                if not self._trouble:
                    logger.warning("tally: %s. Trying again.", str(error) or type(error).__name__)
                self._trouble = str(error) or type(error).__name__
            await stop.wait(_LOOK)

    async def turn(self) -> bool:
        """Count the buckets that have ended since the last pass.

        Returns:
            Whether there were any and nobody else was at it.

        Raises:
            PostgresError: Something could not be done now; doing it again later is safe.
        """
        async with self._database.pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(Sql.alone):
                return False
            place = await connection.fetchrow(Sql.place, SETTLED)
            assert place is not None
            begins, ends = place["begins"], place["ends"]
            self._upto = ends
            if begins >= ends:
                return False
            await connection.execute(Sql.count, begins, ends, timeout=_STATEMENT)
            await connection.execute(Sql.mark, ends)
            await connection.execute(Sql.forget)
            return True
