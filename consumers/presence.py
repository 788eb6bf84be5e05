"""Says every two seconds that this process reads for its consumers, so that one that is gone is missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from ..schemas.ids import Ids
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .engine import DATABASE_ERRORS

logger = logging.getLogger("milepost")

#: Seconds between two times; one of which less was heard is silent (recovery/ages.py).
EVERY = 2.0
#: Longest time that one may take, in seconds.
_WITHIN = 5.0
#: Rows of processes that were killed are removed once in so many times.
_FORGET = 30


class Sql(Queries, file="presence.sql"):
    """Queries of this module."""

    heard: str
    forget: str
    left: str


class Presence:
    """The part that says so.

    Args:
        pool: Of a connection that no handler can occupy.
        consumers: Names.
        process: Its name, for people.
    """

    name = "presence"

    def __init__(
        self, pool: asyncpg.Pool[Any], ids: Ids, *, consumers: Sequence[str], service: str, process: str
    ) -> None:
        self._pool = pool
        self._row = (ids.new(), list(consumers), service, process)
        self._trouble = ""

    async def run(self, stop: Stop) -> None:
        """Say so until asked to stop, and then that nobody is to miss it."""
        turn = 0
        while not stop.asked:
            try:
                async with asyncio.timeout(_WITHIN):
                    await self.turn(forget=turn % _FORGET == 0)
                self._trouble = ""
                turn += 1
            except DATABASE_ERRORS as error:
                if not self._trouble:
                    logger.warning("presence: %s: %s; trying again", type(error).__name__, error)
                self._trouble = f"{type(error).__name__}: {error}"
            await stop.wait(EVERY)
        with suppress(*DATABASE_ERRORS):
            async with asyncio.timeout(_WITHIN), self._pool.acquire() as connection:
                await connection.execute(Sql.left, self._row[0])

    async def turn(self, *, forget: bool = False) -> None:
        """Say so once.

        Args:
            forget: Remove what processes left that were killed.
        """
        async with self._pool.acquire() as connection:
            await connection.execute(Sql.heard, *self._row)
            if forget:
                await connection.execute(Sql.forget, self._row[1])

    def health(self) -> Health:
        """Never red: only what others see of this process is late, and the readers have their own health."""
        return Health(True, self._trouble or f"reads for {', '.join(self._row[1])}")
