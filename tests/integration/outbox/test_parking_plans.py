"""What the relay asks about letters every second costs the same whatever lies in the table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.outbox.store import ParkingSql

from tests.support.outbox import connected

#: Twenty thousand letters that are done, five thousand that wait behind one another, and a handful to be sent.
FILL = """
INSERT INTO milepost.dead_letter (id, scope, event_id, topic, seq, key, value, headers, stage, code, message, attempts,
                                  first_failed_at, last_failed_at, recoverable, status)
SELECT gen_random_uuid(), CASE n % 2 WHEN 0 THEN 'relay:key' ELSE 'relay:topic' END, gen_random_uuid(), 't' || n % 7, n,
       convert_to('k' || n % 50, 'UTF8'), 'x', '[]', 'RELAY', 'KEY_HELD', 'waits', 1, now(), now(), true,
       CASE WHEN n % 5 = 0 THEN 'OPEN' WHEN n % 5003 = 1 THEN 'RETRY_PENDING' ELSE 'RESOLVED' END
FROM generate_series(1, 25000) AS n;
INSERT INTO milepost.hold (scope, topic, key, reason)
SELECT 'relay:key', 't' || n, convert_to('k' || n, 'UTF8'), 'TOO_LARGE: x' FROM generate_series(0, 6) AS n;
"""
SOME = [UUID(int=1)]
QUERIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "asked_topics": (ParkingSql.asked_topics, ()),
    "due_keys": (ParkingSql.due_keys, (False, [], 100)),
    "due_keys of all": (ParkingSql.due_keys, (True, [], 100)),
    "topic_letters": (ParkingSql.topic_letters, ("t1", 100, 1000)),
    "key_letters": (ParkingSql.key_letters, ("t1", b"k1", 100, 1000)),
    "loose_letters": (ParkingSql.loose_letters, ([], 100, 1000)),
    "resolve_letters": (ParkingSql.resolve_letters, (SOME,)),
    "refuse_letters": (ParkingSql.refuse_letters, (SOME, ["c"], ["m"])),
    "release_keys": (ParkingSql.release_keys, (["t1"], [b"k1"])),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_by_index(database_url: str, mode: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute(FILL)
        await connection.execute("ANALYZE milepost.dead_letter; ANALYZE milepost.hold")
        await connection.execute(f"SET plan_cache_mode = {mode}")
        for name, (query, arguments) in QUERIES.items():
            plan = await explained(connection, query, arguments)
            assert "Seq Scan on dead_letter" not in plan, f"{name}\n{plan}"


async def explained(connection: asyncpg.Connection[Any], query: str, arguments: tuple[Any, ...]) -> str:
    rows = await connection.fetch("EXPLAIN (COSTS OFF) " + query, *arguments)
    return "\n".join(row[0] for row in rows)
