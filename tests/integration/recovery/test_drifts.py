"""Each drift made for real, found, and mended by the state machine or told to persons; the rows say so."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from milepost import Action, Drift, Level, Plan
from milepost.console.views.unknown import unknown
from milepost.consumers.tallying import Sql as Tally
from milepost.recovery.accepting import accept
from milepost.recovery.model import Outcome
from milepost.recovery.observing import look
from milepost.recovery.passing import leading
from milepost.recovery.permissions import EVERYTHING, Actor, ActorKind, Grant, Role
from milepost.recovery.policies import Policies
from milepost.recovery.proposing import DriftProposals
from milepost.sagas.facts import Claim, Succeeded, TryFailed
from milepost.schemas.ids import SystemIds
from milepost.schemas.messages import TimerMessage

from tests.support.drifting import Arrived, World, kept, once, outcomes, paid, parcel, passing, sent, world
from tests.support.engine import Rig, rig

IDS = SystemIds()


async def fire(it: Rig) -> None:
    """Let the waker and the orchestrator do what is due."""
    before = len(await it.outgoing(TimerMessage.message_type))
    await it.waker.tick()
    for body in (await it.outgoing(TimerMessage.message_type))[before:]:
        await it.orchestrator.wake(TimerMessage.model_validate(body))


async def finished(at: World, run: UUID, step: str = "send") -> None:
    """Let a live worker do a step."""
    change = await at.it.engine.change(run, Claim(step, at.live))
    assert change is not None and change.decision.claimed is not None
    await at.it.engine.change(run, Succeeded(step, change.decision.claimed.fence))


async def later(it: Rig, where: str, run: UUID) -> None:
    """Let what is due of a run be looked at in an hour, and have begun ten minutes ago."""
    await it.database.pool.execute(
        f"UPDATE milepost.{where} SET wake_at = now() + interval '1 hour'"
        f" WHERE {'id' if where == 'run' else 'run_id'} = $1 AND wake_at IS NOT NULL",
        run,
    )


async def test_an_event_that_is_there_resumes_its_run(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1")
        await finished(at, run)
        async with it.database.pool.acquire() as connection, connection.transaction():
            await it.service.signal(connection, Arrived(id="o-1"))
        await later(it, "step", run)
        await it.database.pool.execute(
            "UPDATE milepost.signal SET matched_at = matched_at - interval '1 minute'"
        )
        assert outcomes(await once(it)) == {"SIGNAL_PRESENT RESUME REPAIRED": 1}
        await fire(it)
        assert (await it.states(run))["arrived"] == "SUCCEEDED"
        assert not outcomes(await once(it))["SIGNAL_PRESENT RESUME REPAIRED"]


async def test_a_wait_is_never_woken_into_its_timeout(database_url: str) -> None:
    """Between look and repair the wait has lost its match: waking it would end it by timeout."""
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1")
        await finished(at, run)
        async with it.database.pool.acquire() as connection, connection.transaction():
            await it.service.signal(connection, Arrived(id="o-1"))
        await later(it, "step", run)
        await it.database.pool.execute(
            "UPDATE milepost.signal SET matched_at = matched_at - interval '1 minute'"
        )
        async with passing(it) as looking:
            seen = await looking.observe({})
            await it.database.pool.execute("UPDATE milepost.wait SET state = 'CLOSED', signal_id = NULL")
            assert outcomes(await looking.act(seen)) == {"SIGNAL_PRESENT RESUME MOVED": 1}
        assert await at.woken() == set()


async def test_an_event_that_was_never_matched_is_a_persons(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1")
        await finished(at, run)
        await it.database.pool.execute(
            "INSERT INTO milepost.signal (id, source, event_id, type, key, payload, received_at, expires_at)"
            " VALUES ($1, 's', 'e', 'drift.arrived', 'o-1', '{}', now() - interval '1 minute',"
            " now() + interval '1 day')",
            IDS.new(),
        )
        await it.database.pool.execute("UPDATE milepost.wait SET since = since - interval '1 minute'")
        assert outcomes(await once(it)) == {"SIGNAL_PRESENT ESCALATE ESCALATED": 1}
        assert outcomes(await once(it)) == {"SIGNAL_PRESENT ESCALATE ALREADY": 1}
        assert (await it.states(run))["arrived"] == "WAITING"


async def test_an_undo_that_nobody_goes_on_with_goes_on(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1")
        await finished(at, run)
        await it.database.pool.execute(
            "UPDATE milepost.step SET state = 'CANCELLED', wake_at = NULL, finished_at = now() WHERE name = 'arrived'"
        )
        await it.database.pool.execute(
            "UPDATE milepost.run SET state = 'COMPENSATING', cause = 'x', updated_at = now() - interval '1 hour'"
        )
        await later(it, "run", run)
        assert outcomes(await once(it)) == {"UNDO_STOPPED RESUME REPAIRED": 1}
        await fire(it)
        states = await it.states(run)
        assert (states[""], states["call_back"]) == ("COMPENSATING", "COMPENSATION_PENDING")
        # Its message is lost, too.
        await at.lose(run)
        await sent(it)
        assert outcomes(await once(it)) == {"UNDO_STOPPED RESUME REPAIRED": 1}
        await fire(it)
        change = await it.engine.change(run, Claim("call_back", at.live))
        assert change is not None and change.decision.claimed is not None
        await it.engine.change(
            run, TryFailed("call_back", change.decision.claimed.fence, "fatal", "GONE", "it is gone")
        )
        assert (await it.states(run))[""] == "COMPENSATION_FAILED"
        assert outcomes(await once(it)) == {"UNDO_STOPPED ESCALATE ESCALATED": 1}
        assert outcomes(await once(it)) == {"UNDO_STOPPED ESCALATE ALREADY": 1}


@pytest.mark.parametrize("queued", [True, False])
async def test_a_lock_of_a_run_that_has_ended_goes_to_the_next(database_url: str, queued: bool) -> None:
    saga = parcel(lock=True)
    async with rig(database_url, saga) as it, world(it, saga) as at:
        first = await at.begin("o-1")
        other = await at.begin("o-2") if queued else None
        pool = it.database.pool
        await pool.execute(
            "UPDATE milepost.step SET state = 'CANCELLED', wake_at = NULL, finished_at = now()"
        )
        await pool.execute(
            "UPDATE milepost.run SET state = 'CANCELLED', wake_at = NULL, finished_at = now() - interval '1 hour'"
            " WHERE id = $1",
            first,
        )
        await pool.execute("UPDATE milepost.resource SET since = since - interval '1 hour'")
        if other is not None:
            await later(it, "run", other)
        assert outcomes(await once(it)) == {"LOCK_LEFT RELEASE_LOCK REPAIRED": 1}
        if other is None:
            assert await it.value("SELECT count(*) FROM milepost.resource") == 0
        else:
            await fire(it)
            assert await it.value("SELECT run_id FROM milepost.resource") == other
        assert outcomes(await once(it))["LOCK_LEFT RELEASE_LOCK REPAIRED"] == 0


async def test_an_unknown_outcome_is_asked_about_when_a_person_wants_to_know(database_url: str) -> None:
    saga = paid()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1")
        change = await it.engine.change(run, Claim("charge", at.live))
        assert change is not None and change.decision.claimed is not None
        await it.engine.change(
            run, TryFailed("charge", change.decision.claimed.fence, "unknown", "TIMEOUT", "")
        )
        await later(it, "step", run)
        assert outcomes(await once(it)) == {"UNKNOWN NONE NOTHING": 1}
        assert outcomes(await once(it, run=run)) == {"UNKNOWN RETRY REPAIRED": 1}
        assert await at.woken() == {run}
        await it.clock("2 hours")
        assert outcomes(await once(it))["UNKNOWN ESCALATE ESCALATED"] == 0, "it is due: somebody asks"
        await it.database.pool.execute("UPDATE milepost.step SET wake_at = now() + interval '5 hours'")
        assert outcomes(await once(it)) == {"UNKNOWN ESCALATE ESCALATED": 1}
        assert outcomes(await once(it)) == {"UNKNOWN ESCALATE ALREADY": 1}
        # Each answer of a probe begins the state anew, and not the time for which nobody knows.
        await it.database.pool.execute("UPDATE milepost.step SET since = milepost.clock()")
        async with it.database.pool.acquire() as lent:
            connection = cast("asyncpg.Connection[Any]", lent)
            (age,) = [age for age in (await look(connection)).ages if age.what == "step_unknown"]
            (asked,) = (await unknown(connection, EVERYTHING)).asked
            begins = await connection.fetchval("SELECT now() - interval '1 day'")
            await connection.execute(Tally.count, begins, begins + timedelta(days=2))
        assert await it.value("SELECT count(*) FROM milepost.tally WHERE what = 'settled'") == 0, (
            "it never went on"
        )
        assert age.seconds is not None and age.seconds > 7000
        assert asked.since == asked.doubt_at


async def test_a_queue_that_nobody_serves_is_told_once(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        for run in await at.many([f"o-{n}" for n in range(30)]):
            await at.lose(run)
        await sent(it)
        await it.database.pool.execute("UPDATE milepost.worker SET expires_at = now() - interval '1 hour'")
        found = await once(it)
        assert outcomes(found) == {"NOT_TOLD ESCALATE ESCALATED": 1}
        assert found[0].observation.evidence["amount"] == 30
        assert outcomes(await once(it)) == {"NOT_TOLD ESCALATE ALREADY": 1}


async def test_what_is_announced_again_in_vain_is_told_once_and_not_announced_again(
    database_url: str,
) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        for run in await at.many([f"o-{n}" for n in range(20)]):
            await at.lose(run)
        await sent(it)
        assert outcomes(await once(it)) == {"NOT_TOLD RESUME REPAIRED": 20}
        await fire(it)  # announced, which raises its generation
        await sent(it)
        assert outcomes(await once(it)) == {"NOT_TOLD NONE NOTHING": 20}
        await it.clock("6 minutes")
        await it.database.pool.execute("UPDATE milepost.step SET wake_at = now() + interval '9 minutes'")
        found = await once(it)
        assert (
            outcomes(found) == {"NOT_TOLD ESCALATE ESCALATED": 1}
            and found[0].observation.evidence["amount"] == 20
        )
        assert outcomes(await once(it)) == {"NOT_TOLD ESCALATE ALREADY": 1}


LETTER = (
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, key, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable, held_key)"
    " SELECT gen_random_uuid(), 'consumer:billing', gen_random_uuid(), 'orders', '\\x01', '[]', 'HANDLE', $1, '', 3,"
    " now() - interval '2 hours', now(), true, '\\x01' FROM generate_series(1, $2::int)"
)


async def test_letters_of_one_cause_are_told_once_and_tried_one_by_one(database_url: str) -> None:
    async with rig(database_url) as it:
        pool = it.database.pool
        await pool.execute(LETTER, "HANDLER_FAILED", 12)
        await pool.execute(LETTER, "KEY_HELD", 3)
        found = await once(it)
        assert (
            outcomes(found) == {"LETTER_OPEN RETRY ESCALATED": 1}
            and found[0].observation.evidence["amount"] == 12
        )
        assert outcomes(await once(it)) == {"LETTER_OPEN RETRY ALREADY": 1}
        bold = Policies(
            given={(Drift.LETTER_OPEN, None): lambda one: Plan(Action.RETRY, Level.BOUNDED_REPAIR, "mended")},
            level=Level.BOUNDED_REPAIR,
        )
        assert outcomes(await once(it, bold)) == {"LETTER_OPEN RETRY REPAIRED": 1}
        asked = await pool.fetch(
            "SELECT n, asked_by FROM milepost.dead_letter WHERE status = 'RETRY_PENDING'"
        )
        first = await pool.fetchval("SELECT min(n) FROM milepost.dead_letter")
        assert [tuple(row) for row in asked] == [(first, "reconciler")]


async def test_a_held_key_without_letters_is_released_where_that_is_allowed(database_url: str) -> None:
    async with rig(database_url) as it:
        pool = it.database.pool
        await pool.execute(LETTER, "HANDLER_FAILED", 1)
        for key in (b"\x01", b"\x02"):
            await pool.execute(
                "INSERT INTO milepost.hold (scope, topic, key, reason, since)"
                " VALUES ('consumer:billing', 'orders', $1, '', now() - interval '2 hours')",
                key,
            )
        usual = await once(it)
        assert outcomes(usual)["KEY_HELD RELEASE_LOCK ESCALATED"] == 1, "a person is asked"
        assert (
            outcomes(await once(it, Policies(level=Level.BOUNDED_REPAIR)))["KEY_HELD RELEASE_LOCK REPAIRED"]
            == 1
        )
        assert await pool.fetch("SELECT key FROM milepost.hold") == [(b"\x01",)]


async def test_a_plan_that_a_person_has_agreed_to_is_carried_out_in_that_persons_name(
    database_url: str,
) -> None:
    async with rig(database_url) as it:
        pool = it.database.pool
        await pool.execute(LETTER, "HANDLER_FAILED", 2)
        usual = DriftProposals()
        (found,) = await once(it, proposals=usual)
        assert (found.outcome, found.plan.level) == (Outcome.PROPOSED, Level.APPROVAL) and found.proposal
        (again,) = await once(it, proposals=usual)
        assert again.outcome is Outcome.ALREADY
        assert await pool.fetchval("SELECT count(*) FROM milepost.dead_letter WHERE status <> 'OPEN'") == 0
        ann = Actor("ann", ActorKind.PERSON, (Grant(Role.APPROVER),))
        async with pool.acquire() as proxy:
            await accept(cast("asyncpg.Connection[Any]", proxy), ann, found.proposal, reason="mended in 1.4")
        two = await asyncio.gather(once(it, proposals=usual), once(it, proposals=usual))
        assert sorted(one.outcome for done in two for one in done)[-1] == Outcome.REPAIRED
        assert sum(one.outcome is Outcome.REPAIRED for done in two for one in done) == 1
        asked = await pool.fetch("SELECT asked_by FROM milepost.dead_letter WHERE status = 'RETRY_PENDING'")
        assert [row["asked_by"] for row in asked] == ["ann"]
        kinds = await pool.fetch("SELECT actor, kind FROM milepost.audit WHERE act = 'reconcile.retry'")
        assert [tuple(row) for row in kinds] == [("ann", "PERSON")]


async def test_an_outbox_that_is_behind_is_told_once_and_nothing_is_announced_again(
    database_url: str,
) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        await at.lose(await at.begin("o-1"))
        await it.database.pool.execute(
            "UPDATE milepost.outbox SET created_at = created_at - interval '5 minutes'"
        )
        found = outcomes(await once(it))
        assert found == {"OUTBOX_BEHIND ESCALATE ESCALATED": 1, "NOT_TOLD NONE NOTHING": 1}
        assert outcomes(await once(it))["OUTBOX_BEHIND ESCALATE ALREADY"] == 1
        await sent(it)
        assert outcomes(await once(it)) == {"NOT_TOLD RESUME REPAIRED": 1}


async def test_a_row_says_before_evidence_decision_after_who_and_why(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = await at.begin("o-1", at.dead)
        await once(it, by="ann")
        row: asyncpg.Record
        (row,) = await kept(it.database.pool)
        correlation = await it.value("SELECT correlation_id FROM milepost.run")
        assert (row["run_id"], row["step"], row["before"], row["decision"], row["after"]) == (
            *(run, "send", "RUNNING"),
            *("RETRY", "RUNNING, due now"),
        )
        assert (row["actor"], row["who"], row["act"]) == ("ann", "ann", "reconcile.retry")
        assert (row["drift"], row["level"], row["correlation_id"]) == ("WORKER_LOST", 2, correlation)
        assert row["reason"] and '"lease_ended_at"' in row["evidence"]
        await fire(it)
        assert (await it.states(run))["send"] == "PENDING"


async def test_how_long_it_must_have_lasted_is_said_for_each_kind_of_work(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        await at.begin("o-1", at.dead)
        it.service.policy(Drift.WORKER_LOST, saga=saga, after=timedelta(hours=1))
        assert outcomes(await once(it, it.service.policies)) == {"WORKER_LOST NONE NOTHING": 1}
        ended = "UPDATE milepost.worker SET expires_at = now() - interval '3 s' WHERE id = $1"
        await it.database.pool.execute(ended, at.dead)
        assert outcomes(await once(it)) == {}, "by default it is too early"
        other = Policies(after={(Drift.WORKER_LOST, "other"): timedelta(seconds=2)})
        assert outcomes(await once(it, other)) == {}, "it was said of another saga"
        hasty = Policies(after={(Drift.WORKER_LOST, "parcel"): timedelta(seconds=2)})
        assert outcomes(await once(it, hasty)) == {"WORKER_LOST RETRY REPAIRED": 1}


async def test_the_runtime_role_suffices(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        await at.begin("o-1", at.dead)
        await it.database.pool.execute(LETTER, "HANDLER_FAILED", 1)
        async with passing(it, proposals=DriftProposals()) as looking:
            await looking.connection.execute("SET ROLE milepost_runtime")
            try:
                found = outcomes(await looking.every())
                async with leading(looking.connection, "rig", timedelta(0)) as places:
                    assert places is not None
            finally:
                await looking.connection.execute("RESET ROLE")
        assert found == {"WORKER_LOST RETRY REPAIRED": 1, "LETTER_OPEN RETRY PROPOSED": 1}


async def test_letters_of_tenants_are_told_apart(database_url: str) -> None:
    async with rig(database_url) as it:
        await it.database.pool.execute(LETTER, "HANDLER_FAILED", 4)
        await it.database.pool.execute("UPDATE milepost.dead_letter SET tenant = 'acme' WHERE n % 2 = 0")
        found = await once(it)
        assert {(one.observation.tenant, one.observation.evidence["amount"]) for one in found} == {
            ("", 2),
            ("acme", 2),
        }


async def test_a_pass_decides_at_most_so_much(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        await at.many([f"o-{n}" for n in range(12)], at.dead)
        assert outcomes(await once(it, most=5)) == {"WORKER_LOST RETRY REPAIRED": 5}
        found = await once(it, page=3)
        assert {one.outcome for one in found} == {Outcome.REPAIRED} and len(found) == 3
        assert timedelta(0) <= found[0].observation.age
