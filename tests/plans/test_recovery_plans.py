"""What looks for drift reads one page of its list, however long that is and however many rows there are beside."""

from __future__ import annotations

import json
from typing import Any

from milepost.recovery.observers import OBSERVERS, Sql, look

from tests.plans.conftest import ROWS
from tests.plans.test_plans import Hot, explained, grows, nodes
from tests.support.outbox import connected

#: Rows of each list, of which a look takes PAGE.
LIST, PAGE = ROWS // 10, 40
#: Most pages that a row of a list may cost: its own, its run's, what is looked up for it, each by a short index.
COST = 16
FILL = (
    "INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at)"
    " VALUES (md5('dead')::uuid, 's', 'dead', '{}', '{}', '{}', now() - interval '1 hour')",
    "INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since, started_at, worker)"
    " SELECT md5('r' || n)::uuid, kind.state, 2, 'STEP', kind.state, now() + interval '1 hour',"
    " now() - n * interval '1 second' - interval '1 hour', now(),"
    " CASE WHEN kind.state = 'RUNNING' THEN md5('dead')::uuid END"
    " FROM generate_series(1, $1::int) AS n,"
    " (VALUES ('PENDING'), ('RUNNING'), ('UNKNOWN'), ('COMPENSATION_FAILED')) AS kind (state)",
    "INSERT INTO milepost.wait (run_id, step, generation, type, key, since) SELECT md5('r' || n)::uuid, 'late', 1,"
    " 'carrier.delivered', 'late' || n, now() - n * interval '1 second' FROM generate_series(1, $1::int) AS n",
    "UPDATE milepost.signal AS g SET matched_at = now() - interval '10 minutes' - n * interval '10 ms'"
    " FROM generate_series(1, $1::int) AS n WHERE g.id = md5('s' || n)::uuid AND g.matched_at IS NOT NULL",
    "UPDATE milepost.run SET state = 'COMPENSATING', wake_at = now() + interval '1 hour', finished_at = NULL,"
    " updated_at = now() - interval '1 hour'"
    " WHERE id IN (SELECT md5('r' || n)::uuid FROM generate_series(1, $1::int) AS n)",
    "INSERT INTO milepost.hold (scope, topic, key, reason, since) SELECT 'consumer:c', 't',"
    " convert_to('k' || n, 'UTF8'), '', now() - interval '2 hours' - n * interval '1 second'"
    " FROM generate_series(1, $1::int) AS n",
    "INSERT INTO milepost.reconciliation (id, step, before, evidence, decision, after, actor, reason, correlation_id,"
    " drift, subject, observed, level) SELECT gen_random_uuid(), '', '', '{}', 'RETRY', '', '', '', '', 'UNKNOWN',"
    " 's' || n, 'v', 2"
    " FROM generate_series(1, $1::int) AS n",
    "UPDATE milepost.dead_letter SET status = 'OPEN', resolved_at = NULL, resolved_by = NULL,"
    " first_failed_at = now() - interval '2 hours' WHERE seq <= $1::int",
)


async def test_every_look_reads_a_page(large_database_url: str) -> None:
    counts, wrong = {}, {}
    async with connected(large_database_url) as (connection,):
        transaction = connection.transaction()
        await transaction.start()
        try:
            for statement in FILL:
                await connection.execute(statement, *([LIST] if "$1" in statement else []))
            for table in ("step", "wait", "signal", "run", "hold", "dead_letter", "worker"):
                await connection.execute(f"ANALYZE milepost.{table}")
            await connection.execute(Sql.by_index)
            looks = {
                one.name: Hot(one.sql, (None, None, one.age, *one.first, PAGE), PAGE * COST)
                for one in OBSERVERS
            }
            looks["outbox"] = Hot(Sql.outbox, (100,), 400)
            asked = (["UNKNOWN"] * 1000, [f"s{n}" for n in range(1000)], ["v"] * 1000)
            looks["decided"] = Hot(Sql.decided, asked, 1000 * 4)
            for name, hot in looks.items():
                plan = await explained(connection, hot)
                if problem := unfit(plan, hot.pages):
                    wrong[name] = problem
            for observer in OBSERVERS:
                page = await look(connection, observer, service=None, page=PAGE)
                counts[observer.name] = len(page.seen)
        finally:
            await transaction.rollback()
            await connection.execute("VACUUM")  # others count what they read here
    assert not wrong, f"{[*wrong]} {json.dumps(wrong, indent=1)}"
    assert all(counts[one.name] <= PAGE * one.pages for one in OBSERVERS), counts
    empty = {name for name, n in counts.items() if not n}
    assert empty <= {"signal_present", "waits", "undo_stopped", "lock_left"}, counts


def unfit(plan: dict[str, Any], pages: int) -> object:
    """What is wrong with a plan, or None."""
    scans = [
        n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan" and grows(n["Relation Name"])
    ]
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return [scans, touched, pages, plan] if scans or touched > pages else None
