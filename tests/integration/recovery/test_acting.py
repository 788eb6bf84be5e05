"""Acts through one door: what is permitted becomes a request, what is not is kept; CRITICAL needs two persons."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from milepost import Milepost, RunRef, RunState, Saga
from milepost.recovery.acting import Attempt, answer_of, ask_for, attempting, subject_of
from milepost.recovery.permissions import EVERYTHING, Act, ActorKind, Permission, Role, Scope
from milepost.recovery.requests import Request
from milepost.recovery.seconding import Held, confirm, decline, held
from milepost.schemas.errors import StateError, UsageError
from milepost.testing import open_kit

from tests.support.console_calls import Call, milepost
from tests.support.engine import settings_for
from tests.support.two_sagas import ANN, BOB, ORDER, PAYMENT, Order, actor, entries, opened, turn

__all__ = ["milepost"]


def cancel(run: RunRef, **more: Any) -> Request:
    return Request(run=run.id, what="cancel", by="", reason="the customer called", undo=False, **more)


async def only(connection: asyncpg.Connection[Any], scope: Scope = EVERYTHING) -> Held:
    (one,) = await held(connection, scope)
    return one


async def test_what_is_permitted_is_asked_for_and_what_is_not_is_kept(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        for who, code in (
            (actor("eve", Role.VIEWER), "MP660"),
            (actor("eve", Role.OPERATOR, sagas=frozenset({"payment"})), "MP660"),
            (actor("bot", Role.AGENT, kind=ActorKind.AGENT), "MP664"),
            (actor("bot", Role.OPERATOR, kind=ActorKind.AGENT), "MP664"),
            (actor("bot", kind=ActorKind.AGENT), "MP660"),
        ):
            refused = await ask_for(connection, who, cancel(run))
            assert (refused.outcome, refused.request, refused.code) == ("REFUSED", None, code)
            row = await it.row("SELECT * FROM milepost.audit WHERE id = $1", refused.audit)
            assert (row["actor"], row["kind"], row["outcome"]) == (who.name, who.kind.value, "REFUSED")
            assert (row["run_id"], row["before"]) == (run.id, '{"run": "PENDING"}')
            assert json.loads(row["evidence"])["refused"] == refused.text
        assert await it.value("SELECT count(*) FROM milepost.request") == 0
        with pytest.raises(UsageError, match="MP614"):
            await ask_for(connection, ANN, Request(run=run.id, what="cancel", by="x", reason=" ", undo=False))

        asked = await ask_for(connection, ANN, cancel(run))
        assert (asked.outcome, asked.permission, asked.text) == ("ASKED", Permission.SAFE_REPAIR, "")
        assert asked.request is not None and await turn(it) == 1
        answer = await answer_of(connection, asked.request)
        assert answer is not None
        assert (answer.state, answer.by, answer.after) == ("ACCEPTED", "Ann", {"run": "CANCELLED"})
        assert (await entries(it))[-1] == ("Ann", "PERSON", "run.cancel", "DONE")


async def test_an_act_on_a_version_that_is_gone_is_refused(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        seen = await subject_of(connection, run.id)
        asked = await ask_for(connection, ANN, cancel(run, run_version=seen.version + 1))
        assert asked.request is not None and await turn(it) == 1
        answer = await answer_of(connection, asked.request)
        assert answer is not None and answer.state == "REFUSED" and "has changed since" in (answer.text or "")
        assert (await it.states(run.id))[""] == "PENDING"


async def test_critical_waits_for_a_second_person_who_is_not_the_first(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(PAYMENT, Order(id="p-1"))
        asked = await ask_for(connection, ANN, cancel(run))
        assert asked.permission is Permission.APPROVAL_REQUIRED and "second person" in asked.text
        assert asked.request is not None
        assert await turn(it) == 0  # held by the process that has the definition
        assert await turn(it) == 0  # and left alone
        assert (await it.states(run.id))[""] == "PENDING"
        one = await only(connection)
        assert (one.id, one.run, one.by, one.what) == (asked.request, "payment/p-1", "Ann", "cancel")
        assert await held(connection, Scope(None, frozenset({"order"}))) == []

        for who, code in ((actor("ANN", Role.ADMIN), "MP661"), (actor("dan", Role.OPERATOR), "MP660")):
            with pytest.raises(StateError, match=code):
                await confirm(connection, who, one, reason="go")
        with pytest.raises(asyncpg.CheckViolationError):  # the table holds it too
            await connection.execute(
                "UPDATE milepost.request SET confirmed_by = 'ANN', state = 'OPEN' WHERE id = $1", one.id
            )
        await confirm(connection, BOB, one, reason="seen it")
        with pytest.raises(StateError, match="MP662"):
            await confirm(connection, actor("dan", Role.ADMIN), one, reason="me too")
        assert await turn(it) == 1
        assert (await it.states(run.id))[""] == "CANCELLED"
        row = await it.row("SELECT * FROM milepost.audit WHERE id = $1", asked.request)
        evidence = json.loads(row["evidence"])
        assert (row["actor"], row["outcome"]) == ("Ann", "DONE")
        assert (evidence["confirmed_by"], evidence["confirm_reason"]) == ("bob", "seen it")
        assert sorted(await entries(it)) == sorted(
            [
                ("Ann", "PERSON", "run.cancel", "HELD"),
                ("ANN", "PERSON", "request.confirm", "REFUSED"),
                ("dan", "PERSON", "request.confirm", "REFUSED"),
                ("bob", "PERSON", "request.confirm", "DONE"),
                ("dan", "PERSON", "request.confirm", "REFUSED"),
                ("Ann", "PERSON", "run.cancel", "DONE"),
            ]
        )


async def test_two_confirm_at_once_and_one_declines(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        first, second = [await it.start(PAYMENT, Order(id=f"p-{n}")) for n in range(2)]
        for run in (first, second):
            await ask_for(connection, ANN, cancel(run))
        await turn(it)
        one = next(o for o in await held(connection, EVERYTHING, run=first.id))
        other = next(o for o in await held(connection, EVERYTHING, run=second.id))

        async def try_it(name: str) -> bool:
            async with it.database.pool.acquire() as own:
                try:
                    await confirm(cast("Any", own), actor(name, Role.APPROVER), one, reason="go")
                except StateError:
                    return False
            return True

        assert sum(await asyncio.gather(*(try_it(f"p{n}") for n in range(4)))) == 1
        await decline(connection, BOB, other, reason="not him")
        assert await turn(it) == 1
        assert (await it.states(first.id))[""] == "CANCELLED"
        assert (await it.states(second.id))[""] == "PENDING"
        answer = await answer_of(connection, other.id)
        assert answer is not None and (answer.state, answer.text) == ("REFUSED", "declined by bob: not him")
        row = await it.row("SELECT * FROM milepost.audit WHERE id = $1", other.id)
        assert (row["actor"], row["act"], row["outcome"]) == ("Ann", "run.cancel", "REFUSED")


async def test_a_request_that_nobody_guarded_is_held_all_the_same(database_url: str) -> None:
    """What is written past every surface waits too, and what would be refused asks nobody."""
    async with opened(database_url) as (it, connection):
        run = await it.start(PAYMENT, Order(id="p-1"))
        await connection.execute("DELETE FROM milepost.workflow")
        asked = await ask_for(connection, ANN, cancel(run))
        nonsense = Request(run=run.id, what="retry", by="", reason="let me", step="pack")
        refused = await ask_for(connection, ANN, nonsense)
        assert asked.request is not None and refused.request is not None and await turn(it) == 1
        states = [await answer_of(connection, request) for request in (asked.request, refused.request)]
        assert [state.state for state in states if state is not None] == ["HELD", "REFUSED"]
        # The application's own code decides for itself.
        async with it.database.pool.acquire() as own, own.transaction():
            await it.service.cancel(own, run, undo=False, by="shop", reason="the customer called")
        assert await turn(it) == 1
        assert (await it.states(run.id))[""] == "CANCELLED"


async def test_what_an_attempt_is_refused_for_is_kept(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        attempt = Attempt(act=Act.REBASELINE, name="outbox.rebaseline", reason="a copy", evidence={"n": 1})
        with pytest.raises(StateError, match="MP660"):
            async with attempting(connection, ANN, attempt):
                raise AssertionError("not reached")
        with pytest.raises(StateError, match="MP423"):
            async with attempting(connection, actor("root", Role.ADMIN), attempt):
                raise StateError("MP423", "nothing to mend.")
        async with attempting(connection, actor("root", Role.ADMIN), attempt):
            pass
        rows = await it.database.pool.fetch("SELECT actor, outcome, evidence FROM milepost.audit ORDER BY id")
        assert [(row["actor"], row["outcome"]) for row in rows] == [("Ann", "REFUSED"), ("root", "REFUSED")]
        assert json.loads(rows[1]["evidence"]) == {"n": 1, "refused": "MP423 nothing to mend."}


def test_the_command_line_holds_and_confirms(
    database_url: str, milepost: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare() -> UUID:
        async with opened(database_url) as (it, _):
            return (await it.start(PAYMENT, Order(id="p-1"))).id

    async def carry() -> int:
        async with opened(database_url) as (it, _):
            return await turn(it)

    run = asyncio.run(prepare())
    words = ("runs", "cancel", "payment/p-1", "--no-undo", "--reason", "called", "--no-wait")
    monkeypatch.setenv("MILEPOST_GRANTS", "viewer")
    status, out, err = milepost("--as", "ann", "--json", *words)
    assert (status, json.loads(out)["outcome"]) == (3, "refused") and '"MP660"' in err
    monkeypatch.setenv("MILEPOST_GRANTS", "root")
    status, _, err = milepost("--as", "ann", *words)
    assert status == 2 and err.startswith("MP663")
    monkeypatch.delenv("MILEPOST_GRANTS")
    status, out, _ = milepost("--as", "ann", "--json", *words)
    assert (status, json.loads(out)["outcome"]) == (0, "asked")
    assert asyncio.run(carry()) == 0
    status, out, _ = milepost("--as", "ann", "worklist", "--kind", "confirm")
    assert status == 0 and "cancel asked for by ann: called" in out and "confirm, decline" in out
    assert milepost("--as", "ann", "worklist", "--mine", "--kind", "confirm")[1].startswith("nothing")
    status, _, err = milepost("--as", "Ann", "confirm", "payment/p-1", "--reason", "yes")
    assert status == 3 and err.startswith("MP661")
    status, out, _ = milepost("--as", "bob", "confirm", "payment/p-1", "--reason", "yes", "--no-wait")
    assert (status, out.split(";")[0]) == (0, "payment/p-1: cancel of ann confirmed")
    assert asyncio.run(carry()) == 1
    status, _, err = milepost("--as", "bob", "decline", str(run), "--reason", "no")
    assert status == 3 and err.startswith("MP662")
    shown = milepost("--json", "runs", "show", "payment/p-1")[1]
    assert json.loads(shown)["state"] == "CANCELLED"


async def test_in_a_kit_the_second_person_is_somebody_else(database_url: str) -> None:
    service = Milepost("kit-second", sagas=[PAYMENT], settings=settings_for(database_url))
    async with open_kit(service) as kit:
        kit.fail(pack_of(PAYMENT), code="NO")
        run = await kit.start(PAYMENT, Order(id="p-1"))
        await kit.cancel(run, undo=False, by="ann", reason="called")
        with pytest.raises(StateError, match="MP661"):
            await kit.confirm(run, by="ann", reason="me again")
        await kit.confirm(run, by="bob", reason="yes")
        await kit.until(run, RunState.CANCELLED)


def pack_of(one: Saga[Order]) -> Any:
    return one.nodes[0]


def test_other_acts_of_the_command_line_are_permitted_or_kept_as_refused(
    database_url: str, milepost: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may only look is refused at each command that changes something, and each refusal is in the audit."""
    letter = """
        INSERT INTO milepost.dead_letter (id, scope, event_id, topic, partition, "offset", headers, value, stage, code,
            message, attempts, first_failed_at, last_failed_at, recoverable)
        VALUES (gen_random_uuid(), 'consumer:billing', gen_random_uuid(), 'orders', 0, 1, '[]', '{}', 'HANDLE', 'NO',
            'no', 3, now(), now(), true)
    """

    async def prepare() -> None:
        async with opened(database_url) as (_, connection):
            await connection.execute(letter)

    async def kept() -> list[str]:
        async with opened(database_url) as (it, _):
            return [act for _, _, act, outcome in await entries(it) if outcome == "REFUSED"]

    asyncio.run(prepare())
    monkeypatch.setenv("MILEPOST_GRANTS", "viewer")
    why = ("--reason", "let me")
    refused = {
        ("dead", "redrive", "1", *why): "letter.redrive",
        ("dead", "ignore", "1", *why): "letter.ignore",
        ("outbox", "rebaseline", "--confirm", *why): "outbox.rebaseline",
        ("reconcile",): "reconcile",
        ("replay", "billing", "--topic", "orders", "--since", "1h", "--apply", *why): "replay",
    }
    for words in refused:
        status, _, err = milepost(*words)
        assert status == 3 and "MP660 " in err, (words, err)
    assert asyncio.run(kept()) == list(refused.values())
    monkeypatch.setenv("MILEPOST_GRANTS", "admin")
    assert milepost("outbox", "rebaseline", "--confirm", *why)[2].startswith("MP423")
    assert asyncio.run(kept())[-1] == "outbox.rebaseline", "what the state refuses is kept, too"
