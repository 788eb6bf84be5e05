"""The statements of webhooks and operations go by index, however many rows are retained."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost.console.operations import Sql as OperationsSql
from milepost.console.webhooks import Sql as WebhooksSql
from milepost.inbox.operations import _Sql as Operations
from milepost.inbox.webhooks import _Sql as Webhooks

from tests.support.outbox import connected

ROWS = 20_000
FILL = (
    "INSERT INTO milepost.webhook (id, service, provider, event_id, path, headers, body, fingerprint, state,"
    " finished_at) SELECT gen_random_uuid(), 's', 'p', n::text, '', '{}', '', '', 'PROCESSED', now()"
    " FROM generate_series(1, $1) AS n",
    "INSERT INTO milepost.operation (kind, key, id, service, fingerprint, repeat, state, expires_at)"
    " SELECT 'k', n::text, gen_random_uuid(), 's', '', 'safe', 'SUCCEEDED', now() FROM generate_series(1, $1) AS n",
)
SECOND = timedelta(seconds=1)
NAME = ("", "k", "7")
QUERIES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "claim_webhooks": (Webhooks.claim_webhooks, ("s", ["p"], 50, SECOND)),
    "same_body": (Webhooks.same_body, ("", "p", "7", b"")),
    "read": (Operations.read, NAME),
    "renew": (Operations.renew, (*NAME, 1, SECOND)),
    "mark_lost": (Operations.mark_lost, (*NAME, 1, "X", "x")),
    "records_in_trouble": (WebhooksSql.records_in_trouble, (SECOND,)),
    "find_webhooks": (WebhooksSql.find_webhooks, ("p", "7", "")),
    "find_operations": (OperationsSql.find_operations, ("k", "7", None, "")),
}


@pytest.mark.parametrize("analyzed", [False, True])
async def test_by_index(database_url: str, analyzed: bool) -> None:
    async with connected(database_url) as (connection,):
        for fill in FILL:
            await connection.execute(fill, ROWS)
        if analyzed:
            await connection.execute("ANALYZE milepost.webhook, milepost.operation")
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for name, (query, arguments) in QUERIES.items():
            if name == "records_in_trouble" and not analyzed:
                continue  # a person's, not a process's: it may wait for the statistics
            rows = await connection.fetch("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + query, *arguments)
            plan = "\n".join(row[0] for row in rows)
            assert "Seq Scan on webhook" not in plan and "Seq Scan on operation" not in plan, (name, plan)
