"""Runs that have ended and are kept: rows of every table that a run writes, as a run of two steps leaves them."""

from __future__ import annotations

import asyncpg

#: $1 is how many, $2 the number of the first. Ids are as those of version 7: in the order of time.
_ID = "(lpad(to_hex($2::bigint + n), 12, '0') || '70008000000000000000')::uuid"
_MANY = "generate_series(1, $1::int) AS n"
FILL = (
    "INSERT INTO milepost.run_key (saga, key, run_id, input_hash, outcome)"
    f" SELECT 'local', 'kept-' || $2::bigint + n, {_ID}, '\\x00', 'SUCCEEDED' FROM {_MANY}",
    "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, finished_at,"
    f" correlation_id, version, history_n, finish_n) SELECT {_ID}, 'flows', 'local', 'kept-' || $2::bigint + n, 1, '',"
    f" '', '{{\"id\": \"kept\"}}', 'SUCCEEDED', now(), 'kept-' || $2::bigint + n, 3, 4, 2 FROM {_MANY}",
    "INSERT INTO milepost.step (run_id, name, n, kind, state, attempt, fence, result, finish_no, since, first_at,"
    f" started_at, finished_at) SELECT {_ID}, 's' || k, k, 'STEP', 'SUCCEEDED', 1, 1, '{{\"value\": 1}}', k + 1, now(),"
    f" now(), now(), now() FROM {_MANY}, generate_series(0, 1) AS k",
    "INSERT INTO milepost.history (run_id, n, event, step, attempt)"
    f" SELECT {_ID}, k, CASE k WHEN 1 THEN 'run.started' WHEN 4 THEN 'run.completed' ELSE 'step.completed' END,"
    f" CASE WHEN k IN (2, 3) THEN 's' || k - 2 END, 1 FROM {_MANY}, generate_series(1, 4) AS k",
)
#: Runs of a transaction.
SOME = 100_000


async def keep_runs(connection: asyncpg.Connection, runs: int) -> None:
    """Fill the tables; statistics are as autovacuum would have them."""
    for start in range(0, runs, SOME):
        async with connection.transaction():
            for statement in FILL:
                await connection.execute(statement, min(SOME, runs - start), start)
    await connection.execute(
        "VACUUM (ANALYZE) milepost.run, milepost.step, milepost.history, milepost.run_key"
    )
