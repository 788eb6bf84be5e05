"""A thousand runs in flight: only what is lost is repaired, once, whoever looks and whatever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from uuid import UUID

from milepost.recovery.model import Outcome
from milepost.sagas.facts import Claim, Stale

from tests.support.drifting import ROWS, World, decided, kept, once, outcomes, parcel, passing, sent, world
from tests.support.engine import Rig, rig
from tests.support.process import ROOT
from tests.support.waiting import until


async def drifted(at: World) -> dict[str, list[UUID]]:
    """A thousand runs under way: five lost with their worker, five never told, five slow, five that will move."""
    untold = await at.many([f"untold-{n}" for n in range(5)])
    for run in untold:
        await at.lose(run)
    await at.many([f"well-{n}" for n in range(980)], at.live)
    lost = await at.many([f"lost-{n}" for n in range(5)], at.dead)
    slow = await at.many([f"slow-{n}" for n in range(5)], at.live)
    pool = at.it.database.pool
    await pool.execute(
        "UPDATE milepost.step SET started_at = started_at - interval '9 hours', since = since - interval '9 hours',"
        " wake_at = now() + interval '1 hour' WHERE run_id = ANY ($1)",
        slow,
    )
    moving = await at.many([f"moving-{n}" for n in range(5)], at.dead)
    await sent(at.it)
    return {"untold": untold, "lost": lost, "slow": slow, "moving": moving}


async def move_on(at: World, runs: list[UUID]) -> None:
    """What has happened to runs while somebody looked: another worker has them."""
    for run in runs:
        await at.it.engine.change(run, Stale("send", 1, datetime.now(UTC)))
        await at.it.database.pool.execute(
            "UPDATE milepost.step SET state = 'PENDING', wake_at = now() + interval '1 hour' WHERE run_id = $1",
            run,
        )
        await at.it.engine.change(run, Claim("send", at.live))


async def test_only_what_is_lost_is_repaired_and_once(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        runs = await drifted(at)
        dry = await once(it, dry_run=True)
        assert await it.value(ROWS) == 0 and await at.woken() == set(), "a dry run changes nothing"
        async with passing(it) as one, passing(it) as other:
            seen = await asyncio.gather(one.observe({}), other.observe({}))
            await move_on(at, runs["moving"])
            first, second = await asyncio.gather(one.act(seen[0]), other.act(seen[1]))
        both = outcomes([*first, *second])
        assert both["WORKER_LOST RETRY REPAIRED"] == 5 and both["NOT_TOLD RESUME REPAIRED"] == 5, both
        assert await at.woken() == {*runs["lost"], *runs["untold"]}
        assert {one.observation.run for one in (*first, *second) if one.outcome is Outcome.REPAIRED} == {
            *runs["lost"],
            *runs["untold"],
        }
        for found in (first, second):
            moved = {one.observation.run for one in found if one.outcome is Outcome.MOVED}
            assert moved >= set(runs["moving"]), "nothing is repaired from an old snapshot"
        assert {one.outcome for one in (*first, *second)} <= {
            *(Outcome.REPAIRED, Outcome.MOVED, Outcome.ALREADY, Outcome.NOTHING)
        }
        assert {place[:2] for place in decided(dry)} == {place[:2] for place in decided([*first, *second])}
        assert outcomes(dry)["WORKER_LOST RETRY REPAIRED"] == 10, "it had seen those that moved later"
        rows = await kept(it.database.pool)
        assert len(rows) == 10 and {row["act"] for row in rows} == {"reconcile.retry", "reconcile.resume"}
        assert all(row["who"] == row["actor"] == "reconciler" and row["reason"] for row in rows)
        assert decided(await once(it)) == set(), "looking again changes nothing more"
        assert await it.waker.tick() == 10


#: What the reconciler is about to write about a step, written by somebody who has not committed.
SAME = (
    "INSERT INTO milepost.reconciliation (id, run_id, step, before, evidence, decision, after, actor, reason,"
    " correlation_id, drift, subject, observed, level)"
    " SELECT gen_random_uuid(), run_id, name, state, '{}', 'RETRY', '', 'x', 'x', 'x', 'WORKER_LOST',"
    " run_id || ':' || name, state || '/' || generation || '/' || fence, 2 FROM milepost.step WHERE run_id = $1"
)
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    " AND query LIKE 'INSERT INTO milepost.reconciliation%'"
)


async def test_a_kill_in_the_middle_leaves_nothing_half_done(database_url: str) -> None:
    """It is killed in a transaction in which it has woken a row and not yet written that it did."""
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        lost = await at.many([f"lost-{n}" for n in range(20)], at.dead)
        await sent(it)
        async with it.database.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(SAME, lost[10])
            path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "milepost.console.main", "--database", database_url, "reconcile"),
                env={**os.environ, "PYTHONPATH": path},
                stdout=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
            )
            await until(lambda: it.value(WAITS), within=60, what="the middle of a repair", every=0.02)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await transaction.rollback()
        await until(lambda: ended(it), what="the end of its session")
        rows = await kept(it.database.pool)
        done = {row["run_id"] for row in rows}
        assert lost[10] not in done and done == await at.woken() and len(rows) == len(done) < 20
        assert all(row["act"] for row in rows), "each has its entry of the audit"
        assert outcomes(await once(it)) == {"WORKER_LOST RETRY REPAIRED": 20 - len(done)}
        assert await at.woken() == set(lost) and await it.value(ROWS) == 20
        assert decided(await once(it)) == set()


async def ended(it: Rig) -> bool:
    """Whether no session but the pool's own is there."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'INSERT INTO %'"
    return bool(await it.value(others + " AND state <> 'idle'") == 0)
