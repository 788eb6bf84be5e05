"""One database for a module's tests, emptied between them: making one takes longer than most of these tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support import servers
from tests.support.talk import execute

CLOCK = (
    "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
    " AS $$ SELECT clock_timestamp() $$"
)
EMPTY = (
    "TRUNCATE milepost.webhook, milepost.operation, milepost.outbox, milepost.audit, milepost.topic",
    "DROP TABLE IF EXISTS bank",
    CLOCK,
)


@pytest.fixture(scope="module")
def kept_database(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """A database for the whole module."""
    with servers.fresh_database(postgres_server, database_template) as url:
        yield url


@pytest.fixture
def database_url(kept_database: str) -> str:
    """The module's database, without the rows of earlier tests."""
    asyncio.run(execute(kept_database, *EMPTY))
    return kept_database
