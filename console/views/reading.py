"""One snapshot for everything that a page shows, read with plans that are made for what is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ...streams.queries import Queries


class Sql(Queries, file="reading.sql"):
    """Queries of this module."""

    settings: str


@asynccontextmanager
async def snapshot(connection: asyncpg.Connection[Any]) -> AsyncGenerator[asyncpg.Connection[Any]]:
    """Read everything in the block as of one instant, and write nothing.

    A plan that was made for any arguments reads whole tables where a filter is left out, so each is made for its own;
    and a statement that would take long is given up rather than kept running for a page that nobody waits for.
    """
    if connection.is_in_transaction():
        yield connection
        return
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(Sql.settings)
        yield connection
