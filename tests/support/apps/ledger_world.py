"""The outside world of the ledger's service: a provider that keeps one row per call and one per effect.

LEDGER_WORLD names a database of the world's own, which fails on its own. A call goes wrong where table `fault` says so,
between two lines: the process kills or freezes itself, the call hangs, is held, is refused or raises.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
from milepost import Refused

TABLES = """
CREATE TABLE IF NOT EXISTS call (id bigserial PRIMARY KEY, key text NOT NULL, what text NOT NULL, pid integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS effect (id bigserial PRIMARY KEY, key text NOT NULL, what text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS effect_key_idx ON effect (key);
CREATE TABLE IF NOT EXISTS fault (run text NOT NULL, what text NOT NULL, point text NOT NULL, act text NOT NULL,
    remaining integer NOT NULL, PRIMARY KEY (run, what, point));
"""


#: Seconds that a request and its answer are each under way.
SLOW = float(os.environ.get("LEDGER_SLOW", "0"))


class ApparatusFailed(Exception):
    """The table of faults could not be read after an effect: says nothing of the effect, so it must not look as if
    the call had never left."""


class World:
    """The provider, as steps see it.

    Args:
        pool: Of its own, so that nothing here shares a transaction with Milepost.
    """

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self.pool = pool

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[World]:
        """Open it."""
        url = os.environ.get("LEDGER_WORLD") or os.environ["MILEPOST_DATABASE_URL"]
        pool = await asyncpg.create_pool(url, min_size=1, max_size=4)
        try:
            yield cls(pool)
        finally:
            pool.terminate()

    async def act(self, run: str, key: str, what: str, *, dedupe: bool) -> int:
        """Do something and return its number; with `dedupe` the second call with one key returns the first's.

        Like a request that has left, it is carried out although the caller is cancelled while it waits.
        """
        return await asyncio.shield(asyncio.ensure_future(self._act(run, key, what, dedupe=dedupe)))

    async def _act(self, run: str, key: str, what: str, *, dedupe: bool) -> int:
        await self.fault(run, what, "sending")
        await asyncio.sleep(SLOW)
        try:
            return await self._carry_out(key, what, dedupe=dedupe)
        finally:
            await asyncio.sleep(SLOW)

    async def _carry_out(self, key: str, what: str, *, dedupe: bool) -> int:
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "INSERT INTO call (key, what, pid) VALUES ($1, $2, $3)", key, what, os.getpid()
            )
            if dedupe:
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", key)
                known = await connection.fetchval("SELECT id FROM effect WHERE key = $1", key)
                if known is not None:
                    return int(known)
            query = "INSERT INTO effect (key, what) VALUES ($1, $2) RETURNING id"
            return int(await connection.fetchval(query, key, what))

    async def find(self, key: str) -> int | None:
        """Return the number of the effect under a key."""
        found: int | None = await self.pool.fetchval("SELECT id FROM effect WHERE key = $1", key)
        return found

    async def fault(self, run: str, what: str, point: str) -> None:
        """Do what table fault says for this point."""
        query = (
            "UPDATE fault SET remaining = remaining - 1 "
            "WHERE run = $1 AND what = $2 AND point = $3 AND remaining > 0 RETURNING act"
        )
        try:
            act = await self.pool.fetchval(query, run, what, point)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if point != "after":
                raise
            raise ApparatusFailed from error
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif act == "hang":
            await asyncio.Event().wait()
        elif act == "hold":
            await self._held(run, what, point)
        elif act == "refuse":
            raise Refused("TOLD_TO")
        elif act == "raise":
            raise RuntimeError("told to")

    async def _held(self, run: str, what: str, point: str) -> None:
        query = "SELECT count(*) FROM fault WHERE run = $1 AND what = $2 AND point = $3"
        while True:
            # The other side knows nothing of this database's troubles.
            with suppress(
                OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):
                if not await self.pool.fetchval(query, run, what, point):
                    return
            await asyncio.sleep(0.05)
