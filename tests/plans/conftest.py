"""A database with many rows in every table that grows, made once for all tests of plans.

100,000 rows a table, a million with MILEPOST_CHAOS=long: what reads all of a table, or all that an index has of one
value, touches thousands of pages then, and what goes by an index touches a few for each row that it returns. What a
statement may touch is a number of its own in the tests, so that more rows change neither the plan nor the verdict.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import asyncpg
import pytest

from tests.support import servers

ROWS = 1_000_000 if os.environ.get("MILEPOST_CHAOS") == "long" else 100_000
#: $1 is the number of rows. Ids are made of the row's number, so that tests can name rows.
FILL = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers, xid)"
    " SELECT md5('o' || n)::uuid, 't', 't', 'k' || n, 'plan.event', '{}', '{}', (100 + n / 10)::text::xid8"
    " FROM generate_series(1, $1::int) AS n",
    'INSERT INTO milepost.inbox (consumer, event_id, fingerprint, outcome, topic, partition, "offset")'
    " SELECT 'c', md5('i' || n)::uuid, '\\x00', 'APPLIED', 't', 0, n FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.run_key (saga, key, run_id, input_hash) SELECT 'order', 'k' || n, md5('r' || n)::uuid,"
    " '\\x00' FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at, finished_at,"
    " correlation_id, created_at)"
    " SELECT md5('r' || n)::uuid, 's', CASE WHEN n % 5000 = 0 THEN 'rare' ELSE 'order' END, 'k' || n, 1, '', '', '{}',"
    " CASE WHEN live THEN 'MANUAL_REQUIRED' ELSE 'SUCCEEDED' END,"
    " CASE WHEN live THEN now() + (n - 2500) * interval '1 second' END, CASE WHEN NOT live THEN now() END, 'c' || n,"
    " now() - n * interval '1 minute' FROM (SELECT n, n % 1000 = 0 AS live FROM generate_series(1, $1::int) AS n) AS g",
    "INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since)"
    " SELECT md5('r' || n)::uuid, 'pay', 1, 'STEP', CASE WHEN live THEN 'WAITING' ELSE 'SUCCEEDED' END,"
    " CASE WHEN live THEN now() + (n - 2500) * interval '1 second' END, now()"
    " FROM (SELECT n, n % 1000 = 0 AS live FROM generate_series(1, $1::int) AS n) AS g",
    "INSERT INTO milepost.handover (run_id, kind, step, service, queue, pin)"
    " SELECT md5('h' || n)::uuid, 'work', 'pay', 's', 'default', 'order/9#@1' FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.signal (id, source, event_id, type, key, payload, expires_at, run_id, matched_at)"
    " SELECT md5('s' || n)::uuid, 's', 'e' || n, 'carrier.delivered', 'k' || n, '{}', now() + interval '1 day',"
    " CASE WHEN n % 1000 > 0 THEN md5('r' || n)::uuid END, CASE WHEN n % 1000 > 0 THEN now() END"
    " FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.wait (run_id, step, generation, type, key, state, signal_id)"
    " SELECT md5('r' || n)::uuid, 'pay', 1, 'carrier.delivered', 'k' || n,"
    " CASE WHEN n % 1000 > 0 THEN 'MATCHED' ELSE 'OPEN' END, CASE WHEN n % 1000 > 0 THEN md5('s' || n)::uuid END"
    " FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, seq, key, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable, status, resolved_at, resolved_by, held_key)"
    " SELECT md5('d' || n)::uuid, CASE n % 3 WHEN 0 THEN 'consumer:c' WHEN 1 THEN 'relay:topic' ELSE 'relay:key' END,"
    " md5('i' || n)::uuid, 't', n, convert_to('k' || n, 'UTF8'), '[]', CASE n % 3 WHEN 0 THEN 'HANDLE' ELSE 'RELAY'"
    " END, 'C', '', 1, now(), now(), true, CASE WHEN open THEN 'OPEN' ELSE 'RESOLVED' END,"
    " CASE WHEN NOT open THEN now() END, CASE WHEN NOT open THEN 'x' END,"
    " CASE WHEN n % 3 = 0 THEN convert_to('k' || n, 'UTF8') END"
    " FROM (SELECT n, n % 1000 < 3 AS open FROM generate_series(1, $1::int) AS n) AS g",
    "INSERT INTO milepost.request (id, service, run_id, what, undo, by, reason, state, answer, answered_at)"
    " SELECT md5('a' || n)::uuid, 's', md5('r' || n)::uuid, 'cancel', true, 'ann', 'r',"
    " CASE WHEN open THEN 'OPEN' ELSE 'ACCEPTED' END, CASE WHEN NOT open THEN '' END, CASE WHEN NOT open THEN now() END"
    " FROM (SELECT n, n % 1000 = 0 AS open FROM generate_series(1, $1::int) AS n) AS g",
    "INSERT INTO milepost.operation (kind, key, id, service, fingerprint, repeat, state, expires_at)"
    " SELECT 'api', 'k' || n, md5('p' || n)::uuid, 's', '\\x00', 'safe', 'SUCCEEDED', now() + interval '1 day'"
    " FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.webhook (id, service, provider, event_id, path, headers, body, fingerprint, state, wake_at,"
    " finished_at) SELECT md5('w' || n)::uuid, 's', 'stripe', 'e' || n, '/', '{}', '{}', '\\x00',"
    " CASE WHEN n % 1000 = 0 THEN 'RECEIVED' ELSE 'PROCESSED' END, CASE WHEN n % 1000 = 0 THEN now() END,"
    " CASE WHEN n % 1000 > 0 THEN now() END FROM generate_series(1, $1::int) AS n",
    # A fan-out in the middle: the first half has ended, one of a thousand badly, and twenty are under way.
    "INSERT INTO milepost.fanout (run_id, step, attempt, input_version, total, next, started)"
    " SELECT md5('f')::uuid, 'send', 1, 1, $1::int, $1::int / 2, 20",
    "INSERT INTO milepost.fanout_item (run_id, step, number, key, input, state, child_id)"
    " SELECT md5('f')::uuid, 'send', n - 1, 'k' || n, '{}', CASE WHEN n > $1::int / 2 THEN 'PENDING'"
    " WHEN n > $1::int / 2 - 20 THEN 'STARTED' WHEN n % 1000 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END,"
    " CASE WHEN n <= $1::int / 2 THEN md5('r' || n)::uuid END FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.resource (name, run_id) SELECT 'k' || n, md5('r' || n)::uuid"
    " FROM generate_series(1, $1::int) AS n",
    "UPDATE milepost.run SET resource = 'k77' WHERE id = md5('r77')::uuid AND $1::int > 0",
    "INSERT INTO milepost.resource_queue (name, run_id)"
    " SELECT CASE WHEN n % 2 = 0 THEN 'free' ELSE 'k77' END, md5('q' || n)::uuid FROM generate_series(1, $1::int) AS n",
)


async def _fill(url: str) -> None:
    connections = [await asyncpg.connect(url) for _ in range(2)]

    async def some(connection: asyncpg.Connection, statements: tuple[str, ...]) -> None:
        for statement in statements:
            await connection.execute(statement, ROWS)

    try:
        await asyncio.gather(some(connections[0], FILL[::2]), some(connections[1], FILL[1::2]))
        await connections[0].execute("VACUUM (ANALYZE)")
    finally:
        for connection in connections:
            await connection.close()


@pytest.fixture(scope="session")
def large_database_url(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """A database with many rows; tests change nothing in it, or roll back."""
    with servers.fresh_database(postgres_server, database_template) as url:
        asyncio.run(_fill(url))
        yield url
