"""Acts over HTTP, carried out by a real engine: what is answered is what the database says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from uuid import UUID

import httpx
import pytest
from milepost import Context, Repeat, Risk, Saga
from milepost.console.web.api import flow
from milepost.console.web.identity.recognising import connected
from milepost.consumers.carrying import Carrier
from milepost.recovery.bulk_carrying import carry, settle
from milepost.recovery.permissions import Grant, Role
from milepost.schemas.masking import MASK
from pydantic import BaseModel

from tests.support.carrying import carrying
from tests.support.consoleweb import Client, Web, console
from tests.support.engine import Rig, rig

ACME, OTHER = frozenset({"acme"}), frozenset({"other"})
CANCEL = {"act": "cancel", "undo": False, "reason": "the customer called"}


class Order(BaseModel):
    id: str


def ordered(severity: Risk) -> Saga[Order]:
    """A saga of one step."""
    made = Saga("order", version=1, input=Order, key=lambda order: order.id, severity=severity)

    @made.step(repeat=Repeat.SAFE)
    async def pack(ctx: Context[Order]) -> None: ...

    made.flow(pack)
    return made


@asynccontextmanager
async def shop(
    url: str, *, carried: bool = True, severity: Risk = Risk.MEDIUM, more: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[tuple[Rig, Web, UUID]]:
    """A service and a console on one database, with a run of tenant acme."""
    saga = ordered(severity)
    async with rig(url, saga) as it, console(url) as web:
        async with it.database.pool.acquire() as connection, connection.transaction():
            run = await it.service.start(connection, saga, Order(id="o-1"), tenant="acme")
            for name, tenant in more:
                await it.service.start(connection, saga, Order(id=name), tenant=tenant)
        async with carrying(it) if carried else nullcontext():
            yield it, web, run.id


async def act(client: Client, run: UUID, body: dict[str, Any], key: str = "k-1") -> httpx.Response:
    return await client.post(f"/api/v1/runs/{run}/acts", json=body, headers={"Idempotency-Key": f'"{key}"'})


async def audited(it: Rig) -> list[tuple[str, str, str]]:
    rows = await it.database.pool.fetch("SELECT actor, act, outcome FROM milepost.audit ORDER BY at, id")
    return [tuple(row) for row in rows]


async def test_an_act_is_carried_out_once_for_its_key_and_told_from_the_state(database_url: str) -> None:
    async with shop(database_url) as (it, web, run):
        ann = await web.person("ann", Grant(Role.OPERATOR, ACME))
        first, second = await asyncio.gather(act(ann, run, CANCEL), act(ann, run, CANCEL))
        done, beside = sorted((first, second), key=lambda answer: answer.status_code)
        assert done.status_code == 200, done.text
        body = done.json()
        assert (body["outcome"], body["run"]["state"]) == ("accepted", "CANCELLED")
        assert beside.status_code in {200, 409}
        again = await act(ann, run, CANCEL)
        assert again.headers["idempotency-replayed"] == "true" and again.json() == body
        other = await act(ann, run, {**CANCEL, "reason": "another one"})
        assert (other.status_code, other.json()["code"]) == (422, "MP460")
        assert (await it.states(run))[""] == "CANCELLED"
        assert await it.value("SELECT count(*) FROM milepost.request") == 1
        assert await audited(it) == [("ann", "run.cancel", "DONE")]
        told = await ann.get(f"/api/v1/requests/{body['request']['id']}")
        assert (told.json()["state"], told.json()["by"]) == ("ACCEPTED", "ann")


async def test_what_is_of_another_tenant_is_not_there_and_the_audit_knows_who_tried(
    database_url: str,
) -> None:
    async with shop(database_url) as (it, web, run):
        eve = await web.program("eve", Grant(Role.ADMIN, OTHER))
        for answer in (
            await act(eve, run, CANCEL),
            await act(eve, UUID(int=7), CANCEL, key="k-2"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "MP710")
        assert await audited(it) == [("eve", "run.cancel", "REFUSED")]
        assert (await it.states(run))[""] == "PENDING"
        assert (await eve.get("/api/v1/audit")).json()["items"] == []
        ann = await web.program("ann", Grant(Role.VIEWER, ACME))
        (entry,) = (await ann.get("/api/v1/audit")).json()["items"]
        assert (entry["actor"], entry["outcome"], entry["run_id"]) == ("eve", "REFUSED", str(run))


async def test_who_may_not_is_told_so_and_nothing_is_asked_for(database_url: str) -> None:
    async with shop(database_url) as (it, web, run):
        viewer = await web.program("vic", Role.VIEWER)
        answer = await act(viewer, run, CANCEL)
        assert (answer.status_code, answer.json()["code"]) == (403, "MP703")
        elsewhere = await web.program("olga", Grant(Role.OPERATOR, OTHER), Grant(Role.VIEWER, ACME))
        answer = await act(elsewhere, run, CANCEL)
        assert (answer.status_code, answer.json()["code"]) == (403, "MP660")
        agent = await web.program("llm", Role.AGENT)
        answer = await act(agent, run, CANCEL)
        assert (answer.status_code, answer.json()["code"]) == (403, "MP664")
        assert [(actor, outcome) for actor, _, outcome in await audited(it)] == [
            *(("vic", "REFUSED"), ("olga", "REFUSED"), ("llm", "REFUSED"))
        ]
        assert await it.value("SELECT count(*) FROM milepost.request") == 0


async def test_the_state_has_the_last_word(database_url: str) -> None:
    async with shop(database_url) as (it, web, run):
        ann = await web.program("ann", Role.OPERATOR)
        retry = {"act": "retry", "step": "pack", "reason": "again"}
        answer = await act(ann, run, retry)
        assert (answer.status_code, answer.json()["code"]) == (409, "MP615")
        assert answer.json()["request"]
        stale = await act(ann, run, {**retry, "fence": 99}, key="k-2")
        assert stale.status_code == 409
        missing = await act(ann, run, {**retry, "step": "ship"}, key="k-3")
        assert (missing.status_code, missing.json()["code"]) == (404, "MP617")
        wrong: list[dict[str, Any]] = [
            {"act": "retry", "reason": "no step"},
            {"act": "cancel", "reason": "undo is not said"},
            {**CANCEL, "step": "pack"},
            {**CANCEL, "reason": ""},
            {**CANCEL, "reason": " "},
            {**CANCEL, "more": 1},
            {"act": "mark-succeeded", "step": "pack", "reason": "x", "result": "\u0000"},
        ]
        for number, body in enumerate(wrong):
            answer = await act(ann, run, body, key=f"w-{number}")
            assert answer.status_code == 422, (body, answer.text)
        unkeyed = await ann.post(f"/api/v1/runs/{run}/acts", json=CANCEL)
        assert unkeyed.status_code == 422
        assert (await it.states(run)) == {"": "PENDING", "pack": "PENDING"}


async def test_a_critical_act_waits_for_somebody_else(database_url: str) -> None:
    async with shop(database_url, severity=Risk.CRITICAL) as (it, web, run):
        await it.database.pool.execute(
            "INSERT INTO milepost.workflow (service, saga, version, severity) VALUES ('rig', 'order', 1, 'CRITICAL')"
            " ON CONFLICT (service, saga) DO UPDATE SET severity = 'CRITICAL'"
        )
        ann = await web.program("ann", Role.ADMIN)
        held = await act(ann, run, CANCEL)
        assert (held.status_code, held.json()["outcome"]) == (202, "held")
        request = held.json()["request"]["id"]
        assert [one["id"] for one in (await ann.get("/api/v1/requests/held")).json()] == [request]
        confirm, why = f"/api/v1/requests/{request}/confirm", {"reason": "seen"}
        own = await ann.post(confirm, json=why, headers={"Idempotency-Key": '"c-1"'})
        assert (own.status_code, own.json()["code"]) == (409, "MP661")
        bob = await web.program("bob", Role.APPROVER)
        confirmed = await bob.post(confirm, json=why, headers={"Idempotency-Key": '"c-1"'})
        assert confirmed.status_code == 200 and confirmed.json()["confirmed_by"] == "bob"
        for _ in range(200):
            if (await it.states(run))[""] == "CANCELLED":
                break
            await asyncio.sleep(0.02)
        assert (await bob.get(f"/api/v1/requests/{request}")).json()["state"] == "ACCEPTED"
        late = await bob.post(confirm, json=why, headers={"Idempotency-Key": '"c-2"'})
        assert (late.status_code, late.json()["code"]) == (409, "MP662")


async def test_without_a_process_of_the_service_the_request_stands_open(database_url: str) -> None:
    async with shop(database_url, carried=False) as (it, web, run):
        ann = await web.program("ann", Role.OPERATOR)
        answer = await act(ann, run, {**CANCEL, "wait": 0})
        assert (answer.status_code, answer.json()["outcome"]) == (202, "open")
        assert answer.json()["run"]["state"] == "PENDING"
        assert json.dumps(answer.json()["request"]["state"]) == '"OPEN"'
        assert await Carrier(it.engine, max_result_bytes=1000).turn() == 1
        assert (await it.states(run))[""] == "CANCELLED"


async def test_what_an_agent_proposes_another_person_accepts(database_url: str) -> None:
    async with shop(database_url) as (it, web, run):
        agent, bob = await web.program("llm", Role.AGENT), await web.program("bob", Role.APPROVER)
        idea = {
            "act": "cancel",
            "run": str(run),
            "arguments": {"undo": False},
            "reason": "nobody wants it",
            "drift": "ordered twice",
            "observed": {"orders": 2},
            "expected": {"orders": 1},
            "idempotent": True,
            "rollback": "order again",
        }
        made = await agent.post("/api/v1/proposals", json=idea, headers={"Idempotency-Key": '"p-1"'})
        assert made.status_code == 201, made.text
        proposal = made.json()
        assert (proposal["state"], proposal["by"], proposal["risk"]) == ("OPEN", "llm", "MEDIUM")
        page = await (await web.person("pat", Role.APPROVER)).get(
            "/recovery", headers={"Accept": "text/html"}
        )
        assert (page.status_code, f"proposal-{proposal['id']}" in page.text) == (200, True), page.text
        accept = f"/api/v1/proposals/{proposal['id']}/accept"
        why, key = {"reason": "seen"}, {"Idempotency-Key": '"a-1"'}
        refused = await agent.post(accept, json=why, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (403, "MP703")
        eve = await web.program("eve", Grant(Role.APPROVER, OTHER))
        hidden = await eve.post(accept, json=why, headers=key)
        assert (hidden.status_code, hidden.json()["code"]) == (404, "MP710")
        assert (await it.states(run))[""] == "PENDING"
        accepted = await bob.post(accept, json=why, headers=key)
        assert (accepted.status_code, accepted.json()["state"]) == (200, "ACCEPTED"), accepted.text
        for _ in range(200):
            if (await it.states(run))[""] == "CANCELLED":
                break
            await asyncio.sleep(0.02)
        assert (await it.states(run))[""] == "CANCELLED"
        assert ("eve", "proposal.accept_proposal", "REFUSED") in await audited(it)


async def test_payloads_are_masked_for_who_may_not_read_them(database_url: str) -> None:
    async with shop(database_url, carried=False) as (it, web, run):
        await it.database.pool.execute(
            'UPDATE milepost.run SET input = \'{"id": "o-1", "card_token": "tok_1", "amount": 9}\''
        )
        viewer = await web.program("vic", Role.VIEWER)
        shown = (await viewer.get(f"/api/v1/runs/{run}")).json()["input"]
        assert shown == dict.fromkeys(("id", "card_token", "amount"), MASK)
        operator = await web.program("ann", Role.OPERATOR)
        shown = (await operator.get(f"/api/v1/runs/{run}")).json()["input"]
        assert shown == {"id": "o-1", "card_token": MASK, "amount": 9}
        found = (await viewer.get("/api/v1/runs", params={"q": "order/o-1"})).json()
        assert [one["id"] for one in found["items"]] == [str(run)]
        hidden = await (await web.program("eve", Grant(Role.ADMIN, OTHER))).get(f"/api/v1/runs/{run}")
        assert hidden.status_code == 404
        assert await audited(it) == [("eve", "run.read_runs", "REFUSED")]


async def test_an_act_on_many_does_what_was_shown_with_one_outcome_each(database_url: str) -> None:
    more = (("o-2", "acme"), ("o-3", "other"))
    async with shop(database_url, more=more) as (it, web, _):
        ann = await web.program("ann", Grant(Role.OPERATOR, ACME))
        choice = {"act": "cancel", "saga": "order"}
        shown = (await ann.post("/api/v1/bulk-preview", json=choice)).json()
        assert (shown["total"], {item["tenant"] for item in shown["items"]}) == (2, {"acme"})
        assert (await ann.post("/api/v1/bulk-preview", json={"act": "cancel"})).status_code == 422
        body = {**choice, "reason": "a holiday", "arguments": {"undo": False}, "rate": 200}
        moved = await ann.post(
            "/api/v1/bulk", json={**body, "expect": 3}, headers={"Idempotency-Key": '"b-1"'}
        )
        assert (moved.status_code, moved.json()["code"]) == (409, "MP720")
        begun = await ann.post(
            "/api/v1/bulk", json={**body, "expect": 2}, headers={"Idempotency-Key": '"b-2"'}
        )
        assert (begun.status_code, begun.json()["total"]) == (202, 2), begun.text
        place = f"/api/v1/bulk/{begun.json()['id']}"
        for _ in range(400):
            async with connected(it.database) as connection:
                await carry(connection)
                await settle(connection)
            if (now := (await ann.get(place)).json())["state"] == "DONE":
                break
            await asyncio.sleep(0.02)
        assert (now["state"], now["left"]) == ("DONE", 0), now
        first = (await ann.get(f"{place}/items", params={"limit": 1})).json()
        rest = (await ann.get(f"{place}/items", params={"cursor": first["next"]})).json()
        assert len(first["items"]) == len(rest["items"]) == 1 and rest["next"] is None
        states = await it.database.pool.fetch("SELECT tenant, state FROM milepost.run ORDER BY tenant, key")
        assert [tuple(row) for row in states] == [("acme", "CANCELLED")] * 2 + [("other", "PENDING")]
        late = await ann.post(
            f"{place}/control", json={"what": "stop", "reason": "x"}, headers={"Idempotency-Key": '"b-3"'}
        )
        assert (late.status_code, late.json()["code"]) == (409, "MP673")
        eve = await web.program("eve", Grant(Role.ADMIN, OTHER))
        assert (await eve.get(place)).status_code == 404
        assert (await eve.get(f"{place}/items")).status_code == 404


async def test_two_consoles_with_one_secret_stand_for_each_other(database_url: str) -> None:
    secret = "one secret of thirty-two characters"
    async with console(database_url, secret=secret) as one, console(database_url, secret=secret) as two:
        ann = await one.person("ann", Role.VIEWER)
        async with two.client(cookies=dict(ann.cookies)) as elsewhere:
            assert (await elsewhere.get("/api/v1/me")).json()["name"] == "ann"
            proof = {"csrf": ann.headers["X-CSRF-Token"]}
            assert (await elsewhere.post("/sign-out", data=proof)).status_code == 303
        assert (await ann.get("/api/v1/me")).status_code == 401
        async with console(database_url) as other:
            bob = await other.person("bob", Role.VIEWER)
            assert (await two.client(cookies=dict(bob.cookies)).get("/api/v1/me")).status_code == 401


async def test_a_dry_run_is_begun_by_who_may_and_what_it_cannot_read_is_said(
    database_url: str, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "SOON", 60.0)  # on a busy machine it takes its time to be refused
    async with console(database_url, kafka=kafka) as web:
        ann = await web.program("ann", Role.OPERATOR)
        body = {"consumer": "billing", "topic": topic_prefix, "since": "0:0", "reason": "looked at"}
        answer = await ann.post("/api/v1/replays", json=body, headers={"Idempotency-Key": '"r-1"'})
        assert (answer.status_code, answer.json()["code"]) == (409, "MP781")
        assert "MP" in answer.json()["detail"]
        for number, wrong in enumerate(({"since": "never"}, {"consumer": "--apply"}, {"topic": ""})):
            headers = {"Idempotency-Key": f'"w-{number}"'}
            refused = await ann.post("/api/v1/replays", json=body | wrong, headers=headers)
            assert refused.status_code == 422, refused.text
        assert await web.pool.fetchval("SELECT count(*) FROM milepost.replay") == 0
