"""Handing on costs the same however many wait, and while somebody holds an old snapshot."""

from __future__ import annotations

import json

from milepost.consumers.resources import _Sql as Sql

from tests.support.locks import locks, sale
from tests.support.outbox import connected

WAITING = 1000
HANDED_ON = 500


async def test_a_thousand_that_wait_and_a_held_snapshot(database_url: str) -> None:
    order = sale()
    async with locks(database_url, order) as it, connected(database_url) as (reader,):
        first = await it.start(order, "o-0")
        await it.it.database.pool.execute(
            "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at, "
            "correlation_id, resource) SELECT md5('w' || n)::uuid, 'rig', 'order', 'w' || n, 1, '', '', '{}', "
            "'PENDING', now() + interval '1 hour', 'c', 'stock:tea' FROM generate_series(1, $1::int) AS n",
            WAITING,
        )
        await it.it.database.pool.execute(
            "INSERT INTO milepost.resource_queue (name, run_id) "
            "SELECT 'stock:tea', md5('w' || n)::uuid FROM generate_series(1, $1::int) AS n ORDER BY n",
            WAITING,
        )
        async with (
            reader.transaction(isolation="repeatable_read"),
            it.it.database.pool.acquire() as connection,
        ):
            await reader.execute("SELECT 1 FROM milepost.run LIMIT 1")
            holder = first.id
            for _ in range(HANDED_ON):
                (row,) = await connection.fetch(Sql.leave, "", "stock:tea", holder)
                holder = row["id"]
            sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {Sql.leave}"
            found = json.loads(await connection.fetchval(sql, "", "stock:tea", holder))[0]
        pages = found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
        assert pages < HANDED_ON / 4, json.dumps(found, indent=1)
