"""`milepost retention` says beforehand what a walk removes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.consumers.memory import shorter_than_runs
from milepost.consumers.retention import POLICIES

from tests.support.outbox import connected
from tests.support.retained import ageing, days, retention, run_of, settings, stop, told

ROWS = (
    'INSERT INTO milepost.inbox (consumer, event_id, fingerprint, outcome, topic, partition, "offset", at)'
    " SELECT 'c', gen_random_uuid(), '\\x00', 'APPLIED', 't', 0, n, clock_timestamp() - n * interval '20 days'"
    " FROM generate_series(1, 4) AS n",
    "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset) VALUES ('c', 't', 0, 4)",
    "INSERT INTO milepost.signal (id, source, event_id, type, key, payload, received_at, expires_at)"
    " SELECT gen_random_uuid(), 's', n::text, 't', 'k', '{}', now(), now() - n * interval '20 days'"
    " FROM generate_series(1, 4) AS n",
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable, status, resolved_at, resolved_by) SELECT gen_random_uuid(),"
    " 'consumer:c', gen_random_uuid(), 't', '\\x', 'HANDLE', 'C', '', 1, now(), now(), true, 'RESOLVED',"
    " now() - n * interval '60 days', 'x' FROM generate_series(1, 3) AS n",
    "INSERT INTO milepost.operation (kind, key, id, service, fingerprint, repeat, state, expires_at) SELECT 'api',"
    " n::text, gen_random_uuid(), 's', '\\x00', 'safe', 'SUCCEEDED', now() + (n - 2.5) * interval '1 day'"
    " FROM generate_series(1, 3) AS n",
    "INSERT INTO milepost.webhook (id, service, provider, event_id, path, headers, body, fingerprint, state,"
    " finished_at) SELECT gen_random_uuid(), 's', 'p', n::text, '/', '{}', '{}', '\\x00', 'PROCESSED',"
    " now() - n * interval '60 days' FROM generate_series(1, 3) AS n",
    "INSERT INTO milepost.request (id, service, run_id, what, undo, by, reason, state, answer, answered_at)"
    " SELECT gen_random_uuid(), 's', gen_random_uuid(), 'cancel', true, 'ann', 'r', 'REFUSED', '',"
    " now() - n * interval '60 days' FROM generate_series(1, 3) AS n",
    "INSERT INTO milepost.reconciliation (id, run_id, step, before, evidence, decision, after, actor, reason,"
    " correlation_id, at) SELECT gen_random_uuid(), gen_random_uuid(), 's', '', '{}', 'RETRY', '', 'system', 'r', '',"
    " now() - n * interval '60 days' FROM generate_series(1, 3) AS n",
)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


async def milepost(url: str, *words: str) -> str:
    """Run a command line in a process of its own."""
    import asyncio
    import sys

    from tests.support.process import ROOT

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "milepost.console.main", *words),
        env={**_clean(), "PYTHONPATH": str(ROOT), "MILEPOST_DATABASE_URL": url, "MILEPOST_APP": ""},
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode()


def _clean() -> dict[str, str]:
    """Return the environment without what other tests of this process have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}


async def test_what_it_counts_is_what_then_goes(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    for statement in ROWS:
        await connection.execute(statement)
    await run_of(connection, began=300, ended=100)
    live = await run_of(connection, began=300, ended=None)
    await told(connection, live, 250)
    gone = await run_of(connection, began=200, ended=95)
    await told(connection, gone, 200)
    lines = [json.loads(line) for line in (await milepost(database_url, "--json", "retention")).splitlines()]
    due = {line["kind"]: line["due"] for line in lines}
    assert due == {
        "inbox": 2,
        "signals": 3,
        "letters": 2,
        "operations": 2,
        "webhooks": 2,
        "replays": 0,
        "participants": 0,
        "runs": 2,
        "requests": 2,
        "reconciliations": 2,
        "history": 0,
        "audit": 0,
    }, "a month with a run that is kept, if only until the next walk, stays"
    held = {line["kind"]: line["held"] for line in lines}
    assert held["history"] == 2
    role, owner = retention(database_url), ageing(database_url)
    await role.tidy(stop())
    assert {kind: role.removed.get(kind, 0) for kind in POLICIES} == {kind: due[kind] for kind in POLICIES}
    again = [json.loads(line) for line in (await milepost(database_url, "--json", "retention")).splitlines()]
    (history,) = [line for line in again if line["kind"] == "history"]
    assert (history["due"], history["held"], history["walked"]) == (1, 1, None)
    await owner.tidy(stop())
    assert owner.removed == {"requests": 2, "reconciliations": 2, "history": 1}
    people = await milepost(database_url, "retention")
    assert "1 month kept for runs" in people and "never" not in people


def test_what_is_told_of_runs_may_not_be_said_to_go_before_them() -> None:
    wrong = settings("postgresql://x@y/z", keep_history=days(30), keep_audit=timedelta(hours=36))
    assert [str(refusal) for refusal in shorter_than_runs(wrong)] == [
        f"MP230 {name}={words} is shorter than keep_runs=90d: what is told of a run stays as long as the run, so it "
        f"would not be gone when you think. Set MILEPOST_{name.upper()}=90d or more, or MILEPOST_KEEP_RUNS={words} or "
        "less."
        for name, words in (("keep_history", "30d"), ("keep_audit", "36h"))
    ]
    assert shorter_than_runs(settings("postgresql://x@y/z", keep_runs=days(30), keep_history=days(30))) == []
