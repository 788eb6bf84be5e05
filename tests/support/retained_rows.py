"""Rows of the inbox and letters of any age, and a connection to look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.support.outbox import connected

INBOX = (
    'INSERT INTO milepost.inbox (consumer, event_id, fingerprint, outcome, topic, partition, "offset", at)'
    " SELECT $1, gen_random_uuid(), '\\x00', $2, 't', 0, n, clock_timestamp() - $3::interval"
    " FROM generate_series(1, $4::int) AS n"
)


POSITION = (
    "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset) VALUES ($1, 't', 0, $2)"
)


LETTER = (
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable, status, resolved_at, resolved_by)"
    " SELECT gen_random_uuid(), 'consumer:c', $1, 't', '\\x', 'HANDLE', 'HANDLER_FAILED', '', 1, f.at, f.at, true, $2,"
    " CASE WHEN $2 IN ('RESOLVED', 'IGNORED') THEN f.at END, CASE WHEN $2 IN ('RESOLVED', 'IGNORED') THEN 'x' END"
    " FROM (SELECT clock_timestamp() - $3::interval AS at) AS f"
)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found
