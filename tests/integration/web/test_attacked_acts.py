"""What somebody tries with acts: on what was not shown, in a role one has not, in words nobody can carry out."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from milepost import Saga, Then
from milepost.console.web.identity.recognising import connected
from milepost.recovery.bulk_carrying import carry
from milepost.recovery.permissions import Grant, Role

from tests.integration.web.test_acts import ACME, Order, shop
from tests.support.consoleweb import Client, console
from tests.support.engine import Rig, rig

CHOICE = {"act": "cancel", "saga": "order"}
BODY: dict[str, Any] = {**CHOICE, "reason": "a holiday", "arguments": {"undo": False}, "rate": 200}


async def swap(it: Rig) -> None:
    """Let what was chosen be another tenant's, and the other way round: the number stays."""
    await it.database.pool.execute(
        "UPDATE milepost.run SET tenant = CASE tenant WHEN 'acme' THEN 'other' ELSE 'acme' END"
    )


async def begin(client: Client, body: dict[str, Any], key: str = "b-1") -> Any:
    return await client.post("/api/v1/bulk", json=body, headers={"Idempotency-Key": f'"{key}"'})


async def test_what_was_not_shown_is_not_begun_though_the_number_is_the_same(database_url: str) -> None:
    async with shop(database_url, carried=False, more=(("o-2", "other"),)) as (it, web, _):
        ann = await web.person("ann", Grant(Role.OPERATOR, ACME))
        found = await ann.get("/bulk/new", params=CHOICE, headers={"Accept": "text/html"})
        form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', found.text))
        shown = (await ann.post("/api/v1/bulk-preview", json=CHOICE)).json()
        await swap(it)
        answer = await ann.post("/bulk", data={**form, "reason": "r", "undo": "no"})
        assert (answer.status_code, "It has changed" in answer.text) == (409, True), answer.text
        answer = await begin(ann, {**BODY, "expect": shown["total"], "mark": shown["mark"]})
        assert (answer.status_code, answer.json()["code"]) == (409, "MP720")
        assert await it.value("SELECT count(*) FROM milepost.bulk") == 0


async def test_words_that_nobody_can_carry_out_are_refused_at_once(database_url: str) -> None:
    async with shop(database_url, carried=False) as (it, web, _):
        ann = await web.program("ann", Grant(Role.OPERATOR, ACME))
        wrong: list[dict[str, Any]] = [{"roles": 5}, {"roles": [{}]}, {"undo": "yes"}]
        for n, more in enumerate([*wrong, {"did_not_happen": "no"}, {"x": 1}]):
            answer = await begin(ann, {**BODY, "expect": 1, "arguments": {"undo": False} | more}, f"b-{n}")
            assert answer.status_code == 422, (more, answer.text)
        assert (await begin(ann, {**BODY, "expect": 1, "arguments": {}}, "b-9")).status_code == 422
        assert await it.value("SELECT count(*) FROM milepost.bulk") == 0


async def test_an_agent_begins_no_act_on_many(database_url: str) -> None:
    async with shop(database_url, carried=False) as (it, web, _):
        agent = await web.program("llm", Role.AGENT, Role.OPERATOR)
        answer = await begin(agent, {**BODY, "expect": 1})
        assert answer.status_code == 403, answer.text
        assert await it.value("SELECT count(*) FROM milepost.bulk") == 0
        assert await it.value("SELECT outcome FROM milepost.audit") == "REFUSED"


async def test_a_run_that_is_not_as_it_was_chosen_is_left_alone(database_url: str) -> None:
    async with shop(database_url, carried=False, more=(("o-2", "acme"),)) as (it, web, run):
        ann = await web.person("ann", Grant(Role.OPERATOR, ACME))
        stand = (
            "UPDATE milepost.run SET state = 'MANUAL_REQUIRED', code = $1 WHERE $2::uuid IS NULL OR id = $2"
        )
        await it.database.pool.execute(stand, "CARD_REFUSED", None)
        body = {"act": "compensate", "code": "CARD_REFUSED", "reason": "r", "expect": 2}
        made = (await begin(ann, body)).json()
        # The first goes on meanwhile, and stands for another reason.
        await it.database.pool.execute(stand, "NO_STOCK", run)
        async with connected(it.database) as connection:
            while await connection.fetchval(
                "SELECT count(*) FROM milepost.bulk_item WHERE state = 'WAITING'"
            ):
                await carry(connection)
        items = (await ann.get(f"/api/v1/bulk/{made['id']}/items")).json()["items"]
        assert [(one["state"], one["outcome"]) for one in items] == [("DONE", "REFUSED"), ("ASKED", None)]
        assert await it.value("SELECT count(*) FROM milepost.request WHERE run_id = $1", run) == 0
        kept = await it.row("SELECT act, outcome FROM milepost.audit WHERE run_id = $1", run)
        assert tuple(kept) == ("run.compensate", "REFUSED")


async def test_a_role_counts_only_for_who_has_it(database_url: str) -> None:
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id)
    paid = saga.approval("paid", roles=frozenset({"finance"}), expires=timedelta(days=1), on_reject=Then.FAIL)
    saga.flow(paid)
    async with rig(database_url, saga) as it, console(database_url) as web:
        run = await it.start(saga, Order(id="o-1"))
        bob = await web.person("bob", Role.APPROVER)
        form = {"act": "approve", "step": "paid", "reason": "r", "role": ["finance", "approver"]}
        await bob.post(f"/runs/{run.id}/acts", data=form)
        assert await it.value("SELECT roles FROM milepost.request") == ["approver"]


async def test_what_serves_all_tenants_is_not_counted_for_one_of_them(database_url: str) -> None:
    async with shop(database_url, carried=False) as (_, web, _run):
        for grant, told in ((Grant(Role.VIEWER), True), (Grant(Role.VIEWER, ACME), False)):
            who = await web.person(f"v-{told}", grant)
            found = (await who.get("/api/v1/overview")).json()
            assert [bool(found[name]) for name in ("outbox", "beside")] == [told, told]
            page = await who.get("/", headers={"Accept": "text/html"})
            assert (page.status_code, "Not sent yet" in page.text) == (200, told)
            page = await who.get("/resources", headers={"Accept": "text/html"})
            assert (page.status_code, "Queues of work" in page.text) == (200, told)
