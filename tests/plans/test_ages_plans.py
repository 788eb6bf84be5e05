"""A look at how old everything is reads so many rows of a kind, however many there are, and goes over indexes alone."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

from milepost.recovery.observing import _LIVE, MOST_RUNS, Sql, look

from tests.plans.test_plans import Hot, explained
from tests.plans.test_recovery_plans import FILL, LIST, unfit
from tests.support.outbox import connected

#: Rows of a kind, and most pages that each may cost: its own, its run's, each by a short index.
MOST, COST = 200, 12
#: Kinds of rows that a query looks at.
KINDS = {"steps": 3, "held": 2, "persons": 2, "of_runs": 9, "records": 9}
RETRIES = (
    "INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since, first_at)"
    " SELECT md5('r' || n)::uuid, 'again', 3, 'STEP', 'RETRY_PENDING', now() + interval '1 hour',"
    " now() - n * interval '1 second', now() - n * interval '1 minute' FROM generate_series(1, $1::int) AS n"
)


async def test_every_statement_reads_so_many_rows(large_database_url: str) -> None:
    wrong = {}
    async with connected(large_database_url) as (connection,):
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        try:
            for statement in (*FILL, RETRIES):
                await connection.execute(statement, *([LIST] if "$1" in statement else []))
            for table in ("step", "wait", "run", "hold", "dead_letter", "worker", "signal", "request"):
                await connection.execute(f"ANALYZE milepost.{table}")
            await connection.execute(Sql.bounded, "60000")
            looks = {
                name: Hot(getattr(Sql, name), (MOST,), kinds * MOST * COST) for name, kinds in KINDS.items()
            }
            looks["live"] = Hot(Sql.live, (MOST, _LIVE), len(_LIVE) * MOST * 4)
            looks["resumed"] = Hot(Sql.resumed, (MOST, UUID(int=0)), MOST * COST)
            for name, hot in looks.items():
                if problem := unfit(await explained(connection, hot), hot.pages):
                    wrong[name] = problem
            seen = await look(connection, most=MOST)
        finally:
            await transaction.rollback()
            await connection.execute("VACUUM")  # others count what they read here
    assert not wrong, json.dumps(wrong, indent=1)
    ages = {age.what: age for age in seen.ages if age.seconds}
    oldest = {
        "step_pending": timedelta(hours=1, seconds=LIST),
        "step_unknown": timedelta(hours=1, seconds=LIST),
        "step_retry": timedelta(minutes=LIST),
        "undo_failed": timedelta(hours=1, seconds=LIST),
        "hold": timedelta(hours=2, seconds=LIST),
        "wait": timedelta(seconds=LIST),
    }
    for what, length in oldest.items():
        seconds = ages[what].seconds or 0.0
        assert abs(seconds - length.total_seconds()) < 600, (what, seconds)
        assert ages[what].more, f"{what}: that there are more than were counted is said"
    assert ages["step_stale"].amount == MOST
    assert sum(seen.live.values()) <= MOST_RUNS * len(_LIVE)
