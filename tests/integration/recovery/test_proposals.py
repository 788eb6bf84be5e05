"""Proposals: an agent writes one, another person decides, and what is done is what stands in it or nothing."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from milepost import RunRef
from milepost.recovery.accepting import accept, reject
from milepost.recovery.acting import answer_of
from milepost.recovery.model import Action, Drift, Plan
from milepost.recovery.permissions import EVERYTHING, Actor, ActorKind, Grant, Role, Scope
from milepost.recovery.policies import Policies
from milepost.recovery.proposals import Proposal, proposals
from milepost.recovery.proposing import DriftProposals, Idea, propose
from milepost.recovery.seconding import confirm, held
from milepost.sagas.facts import Claim, Probed, ProbeError, ProbeFound, TryFailed
from milepost.schemas.errors import StateError, UsageError
from milepost.schemas.ids import SystemIds
from milepost.schemas.states import Level

from tests.support.console_calls import Call, milepost
from tests.support.drifting import once, paid, world
from tests.support.engine import Rig, rig, worker_id
from tests.support.two_sagas import ANN, BOB, ORDER, PAYMENT, Order, actor, entries, opened, turn

__all__ = ["milepost"]
BOT = actor("bot", Role.AGENT, kind=ActorKind.AGENT)


def idea(run: RunRef, /, **more: Any) -> Idea:
    plain: dict[str, Any] = {
        "act": "cancel",
        "run": run.id,
        "reason": "nobody waits for it",
        "drift": "the customer has gone",
        "observed": {"run": "PENDING"},
        "expected": {"run": "CANCELLED"},
        "idempotent": True,
        "rollback": "start it anew",
        "arguments": {"undo": False},
    }
    return Idea(**plain | more)


async def one_of(connection: asyncpg.Connection[Any], id: UUID) -> Proposal:
    (found,) = await proposals(connection, EVERYTHING, id=id)
    return found


async def state(it: Rig, run: RunRef) -> str:
    return (await it.states(run.id))[""]


async def test_an_agent_proposes_and_a_person_accepts_exactly_that(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        written = await propose(connection, BOT, idea(run, evidence={"seen": "crm"}))
        assert await propose(connection, BOT, idea(run, reason="again")) == written, "once while it is open"
        one = await one_of(connection, written)
        assert (one.state, one.kind, one.subject, one.risk, one.needed) == (
            "OPEN",
            "AGENT",
            "order/o-1",
            "MEDIUM",
            1,
        )
        assert (one.observed, one.expected, one.idempotent) == (
            {"run": "PENDING"},
            {"run": "CANCELLED"},
            True,
        )
        assert abs(one.expires_at - one.at - timedelta(hours=24)) < timedelta(seconds=1)
        assert await it.value("SELECT count(*) FROM milepost.request") == 0

        for who, code in ((ANN, "MP660"), (BOT, "MP660"), (actor("BOT", Role.ADMIN), "MP669")):
            with pytest.raises(StateError, match=code):
                await accept(connection, who, written, reason="go")
        done = await accept(connection, BOB, written, reason="true")
        assert done.request is not None and await turn(it) == 1
        assert await state(it, run) == "CANCELLED"
        answer = await answer_of(connection, done.request)
        assert answer is not None and answer.by == "bob" and "proposed by bot" in answer.reason
        one = await one_of(connection, written)
        assert (one.state, one.decided_by) == ("ACCEPTED", "bob") and (one.outcome or "").startswith(
            "accepted: "
        )
        with pytest.raises(StateError, match="MP667"):
            await accept(connection, BOB, written, reason="again")
        acts = await entries(it)
        assert ("bot", "AGENT", "proposal.open", "DONE") in acts
        assert ("bob", "PERSON", "proposal.accept", "DONE") in acts
        assert [act[3] for act in acts if act[2] == "proposal.accept"].count("REFUSED") == 4
        row = await it.row("SELECT evidence FROM milepost.audit WHERE id = $1", done.request)
        assert json.loads(row["evidence"])["proposal"] == str(written)


async def test_what_has_changed_or_is_over_is_not_carried_out(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        moved, late, slow = [await it.start(ORDER, Order(id=f"o-{n}")) for n in range(3)]
        ids = [await propose(connection, BOT, idea(run)) for run in (moved, late, slow)]
        bump = "UPDATE milepost.run SET version = version + 1 WHERE id = $1"
        await connection.execute(bump, moved.id)
        await connection.execute("UPDATE milepost.proposal SET expires_at = at WHERE id = $1", ids[1])
        assert [one.state for one in await proposals(connection, EVERYTHING)] == ["OPEN", "EXPIRED", "STALE"]
        assert [one.id for one in await proposals(connection, EVERYTHING, only_open=True)] == [ids[2]]
        for id in ids[:2]:
            with pytest.raises(StateError, match="MP668"):
                await accept(connection, BOB, id, reason="go")
        kept = await connection.fetch("SELECT state FROM milepost.proposal ORDER BY id")
        assert [row["state"] for row in kept] == ["STALE", "EXPIRED", "OPEN"], "and that stays said"
        again = await propose(connection, BOT, idea(moved))
        assert again not in ids
        # It changes between the acceptance and its being carried out: refused then.
        done = await accept(connection, BOB, ids[2], reason="go")
        await connection.execute(bump, slow.id)
        assert done.request is not None and await turn(it) == 1
        answer = await answer_of(connection, done.request)
        assert answer is not None and answer.state == "REFUSED"
        assert await state(it, slow) == "PENDING"


async def test_two_accept_at_once_and_it_is_done_once(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        written = await propose(connection, BOT, idea(run))

        async def try_it(who: Actor, call: Any) -> bool:
            async with it.database.pool.acquire() as own:
                try:
                    await call(cast("Any", own), who, written, reason="go")
                except StateError as error:
                    assert error.code == "MP667"
                    return False
            return True

        people = [actor(f"p{n}", Role.APPROVER) for n in range(6)]
        calls = [try_it(who, accept if n % 2 else reject) for n, who in enumerate(people)]
        assert sum(await asyncio.gather(*calls)) == 1
        requests = await it.value("SELECT count(*) FROM milepost.request")
        assert requests == ((await one_of(connection, written)).state == "ACCEPTED")


async def test_critical_takes_two_persons_and_a_person_who_proposed_is_one(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        first, second = [await it.start(PAYMENT, Order(id=f"p-{n}")) for n in range(2)]
        of_bot = await propose(connection, BOT, idea(first))
        of_ann = await propose(connection, ANN, idea(second))
        assert [(await one_of(connection, id)).needed for id in (of_bot, of_ann)] == [2, 1]
        await accept(connection, BOB, of_bot, reason="go")
        await accept(connection, BOB, of_ann, reason="go")
        assert await turn(it) == 1
        assert (await state(it, first), await state(it, second)) == ("PENDING", "CANCELLED")
        (one,) = await held(connection, EVERYTHING)
        with pytest.raises(StateError, match="MP661"):
            await confirm(connection, BOB, one, reason="me again")
        await confirm(connection, actor("dan", Role.APPROVER), one, reason="yes")
        assert await turn(it) == 1 and await state(it, first) == "CANCELLED"


async def test_what_cannot_be_or_may_not_be_proposed_is_refused(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        for more in (
            {"act": "approve", "arguments": {}},
            {"act": "cancel", "arguments": {}},
            {"act": "cancel", "arguments": {"undo": True, "force": True}},
            {"act": "retry", "arguments": {}},
            {"act": "redrive", "arguments": {}},
            {"rollback": " "},
            {"stands": timedelta(days=90)},
        ):
            with pytest.raises(UsageError, match="MP670"):
                await propose(connection, BOT, idea(run, **more))
        with pytest.raises(StateError, match="MP617"):
            await propose(connection, BOT, idea(run, act="retry", step="nothing", arguments={}))
        elsewhere = Actor("bot", ActorKind.AGENT, (Grant(Role.AGENT, frozenset({"t"})),))
        for who in (elsewhere, actor("eve", Role.VIEWER), actor("nobody", kind=ActorKind.AGENT)):
            with pytest.raises(StateError, match="MP660"):
                await propose(connection, who, idea(run))
        assert await it.value("SELECT count(*) FROM milepost.proposal") == 0
        assert {entry[2:] for entry in await entries(it)} == {("proposal.open", "REFUSED")}
        written = await propose(connection, BOT, idea(run))
        assert await proposals(connection, Scope(None, frozenset({"payment"}))) == []
        assert (await proposals(connection, Scope(None, frozenset({"order"}))))[0].id == written


LETTER = """
INSERT INTO milepost.dead_letter (id, scope, event_id, topic, partition, "offset", headers, value, stage, code, message,
    attempts, first_failed_at, last_failed_at, recoverable)
VALUES ($1, 'consumer:billing', $1, 'orders', 0, 1, '[]', '{}', 'HANDLE', 'HANDLER_FAILED', 'no', 3, now(), now(),
    true)
RETURNING n
"""


async def test_a_letter_is_redriven_as_proposed_while_it_is_as_it_was(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        numbers = [await connection.fetchval(LETTER, SystemIds().new()) for _ in range(2)]
        plain: dict[str, Any] = {
            "act": "redrive",
            "run": None,
            "arguments": {},
            "observed": {},
            "expected": {},
        }
        run = await it.start(ORDER, Order(id="o-1"))
        ids = [await propose(connection, BOT, idea(run, **plain, letter=n)) for n in numbers]
        await connection.execute("UPDATE milepost.dead_letter SET attempts = 4 WHERE n = $1", numbers[1])
        done = await accept(connection, BOB, ids[0], reason="mended")
        assert done.outcome == "ASKED"
        with pytest.raises(StateError, match="MP668"):
            await accept(connection, BOB, ids[1], reason="mended")
        rows = await connection.fetch("SELECT status, asked_by FROM milepost.dead_letter ORDER BY n")
        assert [tuple(row) for row in rows] == [("RETRY_PENDING", "bob"), ("OPEN", None)]


def test_the_command_line_lists_shows_and_decides(database_url: str, milepost: Call) -> None:
    async def prepare() -> list[UUID]:
        async with opened(database_url) as (it, connection):
            runs = [await it.start(ORDER, Order(id=f"o-{n}")) for n in range(2)]
            return [await propose(connection, BOT, idea(run)) for run in runs]

    async def carry() -> int:
        async with opened(database_url) as (it, _):
            return await turn(it)

    first, second = map(str, asyncio.run(prepare()))
    shown = [
        json.loads(line) for line in milepost("--json", "worklist", "--kind", "proposal")[1].splitlines()
    ]
    assert [(row["id"], row["possible"]) for row in shown] == [
        (one, ["accept", "reject"]) for one in (first, second)
    ]
    assert f"proposals accept|reject {first}" in " ".join(milepost("worklist")[1].split())
    status, out, _ = milepost("proposals", "list", "--by", "BOT")
    assert status == 0 and first in out and "bot (agent)" in out and "nobody waits for it" in out
    status, out, _ = milepost("proposals", "show", first)
    assert status == 0
    for words in ("observed    {", "rollback    start it anew", "state       OPEN until"):
        assert words in out
    status, out, _ = milepost("--as", "ann", "proposals", "accept", first, "--reason", "true", "--no-wait")
    assert (status, out.split(";")[0]) == (0, "order/o-0: cancel accepted")
    assert asyncio.run(carry()) == 1
    status, out, _ = milepost("--as", "ann", "--json", "proposals", "reject", second, "--reason", "not so")
    assert (status, json.loads(out)["state"]) == (0, "REJECTED")
    assert milepost("proposals", "accept", second, "--reason", "x")[2].startswith("MP667")
    assert milepost("proposals", "list")[1] == "nothing is proposed\n"
    lines = [json.loads(line) for line in milepost("--json", "proposals", "list", "--all")[1].splitlines()]
    assert [line["state"] for line in lines] == ["REJECTED", "ACCEPTED"]
    assert lines[1]["outcome"].startswith("accepted: CANCELLED")
    assert milepost("proposals", "show", "nonsense")[0] == 2
    assert milepost("proposals", "show", str(SystemIds().new()))[2].startswith("MP666")


async def test_a_probe_that_learns_nothing_leaves_what_is_proposed_as_it_is(database_url: str) -> None:
    saga, pat = paid(), {"act": "mark_succeeded", "step": "charge", "arguments": {}}
    ask = Policies(given={(Drift.UNKNOWN, None): lambda seen: Plan(Action.RETRY, Level.APPROVAL, "ask now")})
    async with rig(database_url, saga) as it, world(it, saga) as at:
        run = RunRef(await at.begin("o-1"), "", "paid", "o-1")

        async def claimed() -> int:
            change = await it.engine.change(run.id, Claim("charge", at.live))
            assert change is not None and change.decision.claimed is not None
            return change.decision.claimed.fence

        await it.engine.change(run.id, TryFailed("charge", await claimed(), "unknown", "TIMEOUT", ""))
        async with it.database.pool.acquire() as lent:
            connection = cast("asyncpg.Connection[Any]", lent)
            marked = await propose(connection, BOT, idea(run, **pat))
            (planned,) = await once(it, ask, proposals=DriftProposals())
            assert planned.outcome == "PROPOSED" and planned.proposal is not None
            fence = await claimed()
            assert (await one_of(connection, marked)).state == "OPEN", "also while it is asked about"
            nothing = ProbeError("AWAY", "it does not answer")
            await it.engine.change(run.id, Probed("charge", fence, nothing))
            assert (await one_of(connection, marked)).state == "OPEN"
            assert await propose(connection, BOT, idea(run, **pat)) == marked, "the same stands once"
            await accept(connection, BOB, planned.proposal, reason="the bank is back")
            (done,) = await once(it, ask, proposals=DriftProposals())
            assert done.outcome == "REPAIRED"
            await it.engine.change(run.id, Probed("charge", await claimed(), ProbeFound(None)))
            assert (await one_of(connection, marked)).state == "STALE", "now somebody knows"
            with pytest.raises(StateError, match="MP668"):
                await accept(connection, BOB, marked, reason="go")


async def test_what_goes_on_beside_a_step_leaves_a_proposal_about_it_as_it_is(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        runs = [await it.start(ORDER, Order(id=f"o-{n}")) for n in range(2)]
        for run in runs:
            name = await it.value("SELECT name FROM milepost.step WHERE run_id = $1", run.id)
            change = await it.engine.change(run.id, Claim(name, worker_id()))
            assert change is not None and change.decision.claimed is not None
            fence = change.decision.claimed.fence
            await it.engine.change(run.id, TryFailed(name, fence, "unknown", "ASK", "a person"))
        plain: dict[str, Any] = {"act": "skip", "step": name, "arguments": {"did_not_happen": True}}
        ids = [await propose(connection, BOT, idea(run, **plain)) for run in runs]
        await connection.execute("UPDATE milepost.run SET version = version + 1")
        done = await accept(connection, BOB, ids[0], reason="go")
        await connection.execute("UPDATE milepost.step SET fence = fence + 1 WHERE run_id = $1", runs[1].id)
        with pytest.raises(StateError, match="MP668"):
            await accept(connection, BOB, ids[1], reason="somebody has tried it since")
        await connection.execute("UPDATE milepost.run SET version = version + 1")
        assert done.request is not None and await turn(it) == 1
        answer = await answer_of(connection, done.request)
        assert answer is not None and answer.state == "ACCEPTED", answer
