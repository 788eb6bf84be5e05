"""What the tests of consumers share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from milepost.streams.database import Database

from tests.support.inbox import Effects, opened


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open pool on a database of the test's own."""
    async with opened(database_url) as database:
        yield database


@pytest.fixture
def effects(database: Database) -> Effects:
    """The effects that its handlers have had."""
    return Effects(database.pool)
