"""Many events in one call."""

from __future__ import annotations

import pytest
from milepost import UsageError, publish
from milepost.outbox.statements import MOST_LOCKS

from tests.support.outbox import Noted, connected


async def test_keys_that_are_locked_together_are_bounded(database_url: str) -> None:
    """The table of locks is the whole server's; one that is full fails every session."""
    async with connected(database_url) as (connection,):
        async with connection.transaction():
            with pytest.raises(UsageError, match=rf"MP319 publish\(\): .* {MOST_LOCKS + 1} keys"):
                await publish(connection, *[Noted(key=f"k{n}") for n in range(MOST_LOCKS + 1)], lock_key=True)
            ids = await publish(
                connection,
                *[Noted(key=f"k{n % MOST_LOCKS}", n=n) for n in range(MOST_LOCKS * 2)],
                lock_key=True,
            )
            locks = await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
        assert locks == MOST_LOCKS
        stored = await connection.fetch("SELECT id FROM milepost.outbox ORDER BY seq")
        assert [row["id"] for row in stored] == ids
