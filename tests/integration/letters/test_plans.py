"""What every consumer asks each second, and what every batch of a holding one asks, costs nothing at many letters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.inbox import asking, letters, redrive_store, store
from milepost.recovery import letters as acts

from tests.support.outbox import connected

FILL = """
    INSERT INTO milepost.dead_letter (id, scope, event_id, topic, partition, "offset", key, value, headers, stage, code,
        message, attempts, first_failed_at, last_failed_at, recoverable, status, held_key, asked_at, asked_by,
        resolved_at, resolved_by)
    SELECT gen_random_uuid(), 'consumer:c' || n % 3, gen_random_uuid(), 't', 0, n, k.key, 'x', '[]', 'HANDLE', 'CODE',
           'm', 1, milepost.clock(), milepost.clock(), true, k.status, k.key, milepost.clock(), 'a',
           CASE WHEN k.status = 'RESOLVED' THEN milepost.clock() END, CASE WHEN k.status = 'RESOLVED' THEN 'a' END
    FROM generate_series(1, 30000) AS n,
         LATERAL (SELECT convert_to('k' || n % 5000, 'UTF8') AS key,
                         CASE WHEN n % 1500 = 0 THEN 'RETRY_PENDING' WHEN n % 12 = 0 THEN 'OPEN' ELSE 'RESOLVED' END
                             AS status) AS k;
    INSERT INTO milepost.hold (scope, topic, key, reason)
    SELECT 'consumer:c0', 't', convert_to('k' || n, 'UTF8'), 'r' FROM generate_series(1, 6000) AS n;
"""
KEYS = [b"k1", b"k2", b"none"]
QUERIES: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "waiting": (redrive_store._Sql.waiting, (["consumer:c0"],), "dead_letter_pending_idx"),
    "next_letter": (redrive_store._Sql.next_letter, ("consumer:c0",), "dead_letter_pending_idx"),
    "followers": (asking.Sql.wake_followers, ("consumer:c0", "t", b"k1", "a"), "dead_letter_"),
    "release": (asking.Sql.release_hold, ("consumer:c0", "t", b"k1"), "dead_letter_turn_idx"),
    "choose": (
        acts._Sql.choose,
        (["OPEN", "RETRY_PENDING"], None, None, [], None, None, None, "0123456789ab", None, ["OPEN"], 500),
        "dead_letter_cause_idx",
    ),
    "held": (letters._Sql.held, ("consumer:c0", "t", KEYS), "hold_pkey"),
    "insert_by_key": (
        store._Sql.insert_by_key,
        ("c", [UUID(int=1)], [""], [b""], ["APPLIED"], "t", 0, [1], "consumer:c0", KEYS),
        "hold_pkey",
    ),
}


@pytest.mark.parametrize("analyzed", [False, True])
async def test_by_index(database_url: str, analyzed: bool) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute(FILL)
        if analyzed:
            await connection.execute("ANALYZE milepost.dead_letter, milepost.hold")
        for name, (query, arguments, index) in QUERIES.items():
            plan = await explained(connection, query, arguments)
            assert index in plan, f"{name}: {plan}"
            assert "Seq Scan on dead_letter" not in plan and "Seq Scan on hold" not in plan, f"{name}: {plan}"


async def explained(connection: asyncpg.Connection[Any], query: str, arguments: tuple[Any, ...]) -> str:
    transaction = connection.transaction()
    await transaction.start()
    try:
        rows = await connection.fetch("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + query, *arguments)
    finally:
        await transaction.rollback()
    return "\n".join(row[0] for row in rows)
