"""One pool for a process, whoever opens it first."""

from __future__ import annotations

import asyncio

from milepost.streams.database import Database

from tests.support.outbox import connected, settings
from tests.support.waiting import until


async def open_at_once(url: str, database: Database) -> None:
    """Open from five places, and look what the server has to hold and what is left afterwards."""
    async with connected(url) as (connection,):

        async def others() -> int:
            return int(
                await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            )

        async def none() -> bool:
            return await others() == 0

        await until(none, what="connections of others to end")
        await asyncio.gather(*(database.open() for _ in range(5)))
        assert await others() == 1
        await database.close()
        await until(none, what="the pool to be gone")


def test_opened_from_several_places_at_once(database_url: str) -> None:
    database = Database(settings(database_url))
    asyncio.run(open_at_once(database_url, database))
    asyncio.run(open_at_once(database_url, database))
