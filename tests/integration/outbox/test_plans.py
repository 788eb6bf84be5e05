"""The relay's statements go by index whatever the statistics say: while rows stream in, these lag behind."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from milepost.outbox.store import Sql

from tests.support.outbox import connected

ROWS = 20_000
FILL = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, type, payload, xid)"
    " SELECT gen_random_uuid(), 't', 't', 't', '\\x00', (100 + n / 10)::text::xid8"
    " FROM generate_series(1, $1::int) AS n"
)
PREVIOUS, CURRENT = (100, 2000, (150, 160)), (2000, 2101, ())
QUERIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "read_new": (Sql.read_new, (2000, [150, 160], 4000, 4_000_000)),
    "find_floors": (Sql.find_floors, (2000, 2101, [150, 160], 0, CURRENT)),
    "read_page": (Sql.read_page, (18_990, PREVIOUS, CURRENT, [150, 160], 0, 100, 4_000_000)),
    "read_plain": (Sql.read_plain, (18_990, PREVIOUS, CURRENT, 100)),
    "oldest_unsent": (Sql.oldest_unsent, (2000, [150, 160], CURRENT, 0, 1000)),
}


async def explained(connection: asyncpg.Connection[Any], query: str, arguments: tuple[Any, ...]) -> str:
    await connection.execute(Sql.begin_read)
    try:
        rows = await connection.fetch(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS) " + query, *arguments
        )
    finally:
        await connection.execute(Sql.end_read)
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("analyzed_when", ["never", "empty", "full"])
@pytest.mark.parametrize("name", QUERIES)
async def test_by_index(database_url: str, name: str, analyzed_when: str) -> None:
    query, arguments = QUERIES[name]
    async with connected(database_url) as (connection,):
        if analyzed_when == "empty":
            await connection.execute("ANALYZE milepost.outbox")
        await connection.execute(FILL, ROWS)
        if analyzed_when == "full":
            await connection.execute("ANALYZE milepost.outbox")
        plan = await explained(connection, query, arguments)
    assert "Seq Scan on outbox" not in plan and "Bitmap Heap Scan" not in plan, plan
    assert "_pkey" not in plan, plan
    index = "_seq_idx" if name in ("read_page", "read_plain") else "_xid_idx"
    assert index in plan, plan


async def test_the_tick_costs_the_same_over_many_retained_rows(database_url: str) -> None:
    """A tick touches what is new; what is retained may grow tenfold."""

    async def buffers(connection: asyncpg.Connection[Any], since: int) -> int:
        plan = await explained(connection, Sql.read_new, (since, [150, 160], 4000, 4_000_000))
        hits = plan.partition("Buffers: shared hit=")[2]
        return int(hits.split()[0])

    async with connected(database_url) as (connection,):
        await connection.execute(FILL, 2000)
        few = await buffers(connection, 290)
        await connection.execute(FILL, 20_000)
        many = await buffers(connection, 2090)
    assert many < 3 * few + 30, (few, many)
