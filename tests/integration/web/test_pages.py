"""The pages as people use them: each act carried out by a real process, and every page in every dress."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
import uvicorn
from milepost import Milepost
from milepost.recovery.permissions import Role
from milepost.schemas.messages import work_topic
from playwright.async_api import Browser, Page, expect

from tests.support import servers
from tests.support.apps.console_sagas import PlaceOrder, order, payout
from tests.support.browser import DRESSES, Reader, chromium, needs_browser, reader
from tests.support.consoleweb import Web, console
from tests.support.engine import settings_for
from tests.support.process import served
from tests.support.waiting import until

pytestmark = [needs_browser, pytest.mark.asyncio(loop_scope="module")]

PLACED = (
    *("a-1", "b-shut", "c-shut", "d-stuck", "e-stuck", "f-stuck", "g-stuck", "h-stuck"),
    *("i-lost", "j-wait", "k-wait"),
)


@dataclass
class Shop:
    """A service at work, its console, and a browser."""

    web: Web
    browser: Browser
    pool: asyncpg.Pool[Any]
    service: Milepost
    runs: dict[str, UUID] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    async def place(self, name: str) -> UUID:
        async with self.pool.acquire() as connection, connection.transaction():
            saga = payout if name.startswith("p-") else order
            self.runs[name] = (await self.service.start(connection, saga, PlaceOrder(order_id=name))).id
        return self.runs[name]

    @asynccontextmanager
    async def by(self, name: str, *roles: Role, **dress: Any) -> AsyncIterator[Reader]:
        if name not in self.tokens:
            self.tokens[name] = await self.web.token(name, *(roles or (Role.ADMIN,)))
        async with reader(self.browser, self.web.base, self.tokens[name], **dress) as window:
            yield window

    async def run(self, name: str) -> Any:
        return await self.pool.fetchrow("SELECT * FROM milepost.run WHERE id = $1", self.runs[name])

    async def step(self, name: str, step: str) -> Any:
        return await self.pool.fetchrow(
            "SELECT * FROM milepost.step WHERE run_id = $1 AND name = $2", self.runs[name], step
        )

    async def settled(self) -> bool:
        moving = "state IN ('PENDING', 'RUNNING', 'COMPENSATING') AND key NOT LIKE '%-lost'"
        return not await self.pool.fetchval(f"SELECT count(*) FROM milepost.run WHERE {moving}")


@asynccontextmanager
async def uvicorn_of(web: Web) -> AsyncIterator[None]:
    """Serve the console on a free port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(web.app, lifespan="off", log_level="warning"))
    task = asyncio.create_task(server.serve([listening]))
    web.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        await until(lambda: server.started, what="the console listening")
        yield
    finally:
        server.force_exit = server.should_exit = True
        await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(
    postgres_server: servers.DatabaseServer, database_template: str, kafka_server: servers.MessageServer
) -> AsyncIterator[Shop]:
    name = f"t{secrets.token_hex(5)}"
    with servers.fresh_database(postgres_server, database_template) as url:
        env = {
            "MILEPOST_APP": "tests.support.apps.console_service:service",
            "MILEPOST_DATABASE_URL": url,
            "MILEPOST_KAFKA": kafka_server.bootstrap,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_LEASE": "3s",
            "CONSOLE_SERVICE": name,
        }
        service = Milepost(name, sagas=[order, payout], settings=settings_for(url))
        async with (
            console(url) as web,
            uvicorn_of(web),
            chromium() as browser,
            asyncpg.create_pool(url, min_size=1, max_size=3) as pool,
            served(env),
        ):
            web.app.state.ends.kafka = kafka_server.bootstrap
            made = Shop(web, browser, pool, service)
            for one in (*PLACED, "p-1"):
                await made.place(one)
            await until(made.settled, within=40, what="every order settled or in front of a person")
            yield made


async def act(page: Page, label: str, reason: str, *, within: str = "#decide", **fields: str) -> None:
    """Fill an act's form and send it; what the page shows then is of the database."""
    form = page.locator(within).locator("details.act", has=page.get_by_text(label, exact=True).first).first
    await form.locator("summary").click()
    for name, value in fields.items():
        field_ = form.locator(f"[name={name}]")
        if await field_.first.get_attribute("type") in {"radio", "checkbox"}:
            await form.locator(f"[name={name}][value={value}]").check()
        else:
            await field_.fill(value)
    await form.locator("[name=reason]").fill(reason)
    await form.get_by_role("button", name=label).click()
    await page.wait_for_url("**/runs/*?asked=*")


async def test_every_page_in_every_dress(shop: Shop) -> None:
    pages = ["/", "/worklist", "/runs", "/runs?q=nobody", f"/runs/{shop.runs['b-shut']}"]
    for dress, options in DRESSES.items():
        async with shop.by("ann", **options) as window:
            for path in pages:
                page = await window.open(path)
                await page.locator("main h1").wait_for()
                assert await window.violations() == [], (dress, path)
                beyond = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert beyond <= 0, (dress, path, beyond)
                assert await page.locator("html[data-now]").count() == 1


async def test_acts_on_steps_are_carried_out_and_shown_from_the_state(shop: Shop) -> None:
    async with shop.by("ann") as window:
        page = await window.open(f"/runs/{shop.runs['d-stuck']}")
        await act(page, "Retry", "accounting has opened them")
        await expect(page.locator("#asked")).to_contain_text("Accepted")
        await until(lambda: _is(shop, "d-stuck", "SUCCEEDED"), what="the run on its way after the retry")
        assert json.loads((await shop.step("d-stuck", "close_order"))["result"]) == {"id": "closed"}

        page = await window.open(f"/runs/{shop.runs['e-stuck']}")
        await act(page, "Skip", "closed by hand")
        await until(lambda: _is(shop, "e-stuck", "SUCCEEDED"), what="the run past what was skipped")
        assert (await shop.step("e-stuck", "close_order"))["state"] == "SKIPPED"

        page = await window.open(f"/runs/{shop.runs['f-stuck']}")
        await act(page, "Mark succeeded", "seen in the books", result='{"id": "b-17"}')
        await until(lambda: _is(shop, "f-stuck", "SUCCEEDED"), what="the run with the given result")
        assert json.loads((await shop.step("f-stuck", "close_order"))["result"]) == {"id": "b-17"}
        query = "SELECT act, actor, reason, outcome FROM milepost.audit WHERE actor = 'ann' ORDER BY at"
        rows = await shop.pool.fetch(query)
        assert [tuple(row) for row in rows] == [
            ("run.retry", "ann", "accounting has opened them", "DONE"),
            ("run.skip", "ann", "closed by hand", "DONE"),
            ("run.mark_succeeded", "ann", "seen in the books", "DONE"),
        ]


async def test_a_refused_act_says_why_and_changes_nothing(shop: Shop) -> None:
    async with shop.by("ann") as window:
        page = await window.open(f"/runs/{shop.runs['g-stuck']}")
        await shop.pool.execute(
            "UPDATE milepost.step SET fence = fence + 1 WHERE run_id = $1 AND name = 'close_order'",
            shop.runs["g-stuck"],
        )
        await act(page, "Retry", "again")
        await expect(page.locator("#asked")).to_contain_text("Refused")
        assert (await shop.run("g-stuck"))["state"] == "MANUAL_REQUIRED"


async def test_acts_on_runs(shop: Shop) -> None:
    async with shop.by("ann") as window:
        page = await window.open(f"/runs/{shop.runs['j-wait']}")
        await act(page, "Cancel", "the customer called", within="#acts", undo="no")
        await until(lambda: _is(shop, "j-wait", "CANCELLED"), what="the run cancelled without undo")
        await page.reload()
        await expect(page.locator("#summary .state").first).to_have_text("Cancelled")
        why = page.locator("#acts .act.off", has_text="Cancel").locator(".why")
        await expect(why).to_have_text("It has ended.")

        page = await window.open(f"/runs/{shop.runs['h-stuck']}")
        await act(page, "Compensate", "given up", within="#acts")
        await until(lambda: _asked_about_refund(shop, "h-stuck"), what="the refund asked about")
        await page.reload()
        await act(page, "Reject", "pay it out by hand instead")
        await until(lambda: _is(shop, "h-stuck", "COMPENSATION_FAILED"), what="the undo in front of a person")


async def test_a_run_that_stands_with_nothing_in_its_way_is_resumed(shop: Shop) -> None:
    """As nothing of ours leaves it: its last step is over, and nobody goes on with the run."""
    await shop.place("r-stuck")
    await until(
        lambda: _is(shop, "r-stuck", "MANUAL_REQUIRED"), within=20, what="the run in front of a person"
    )
    async with shop.by("ann") as window:
        page = await window.open(f"/runs/{shop.runs['r-stuck']}")
        why = page.locator("#acts .act.off", has_text="Resume").locator(".why")
        await expect(why).not_to_be_empty()
        await shop.pool.execute(
            "UPDATE milepost.step SET state = 'SKIPPED', wake_at = NULL, finished_at = milepost.clock()"
            " WHERE run_id = $1 AND name = 'close_order'",
            shop.runs["r-stuck"],
        )
        await page.reload()
        await act(page, "Resume", "closed by hand", within="#acts")
        await expect(page.locator("#asked")).to_contain_text("Accepted")
        await until(lambda: _is(shop, "r-stuck", "SUCCEEDED"), what="the end of the run")


async def test_an_approval_without_scripts(shop: Shop) -> None:
    async with shop.by("ann", java_script_enabled=False) as window:
        page = await window.open("/worklist")
        await page.get_by_role("link", name="order/b-shut").click()
        await act(page, "Approve", "the carrier is closed for good")
        await expect(page.locator("#asked .state")).to_have_text("Accepted")
        await until(lambda: _is(shop, "b-shut", "COMPENSATED"), what="the refund, and the end of the run")
        said = await shop.pool.fetch(
            "SELECT by, decision FROM milepost.approval WHERE run_id = $1", shop.runs["b-shut"]
        )
        assert [tuple(row) for row in said] == [("ann", "APPROVED")]


async def test_a_critical_act_needs_a_second_person(shop: Shop) -> None:
    async with shop.by("ann") as window, shop.by("bob") as other:
        page = await window.open(f"/runs/{shop.runs['p-1']}")
        await expect(page.locator("#decide")).to_contain_text("a second person, who is not you")
        await act(page, "Skip", "paid by hand")
        await expect(page.locator("#asked .state")).to_have_text("Held")
        assert (await shop.run("p-1"))["state"] == "MANUAL_REQUIRED"
        own = page.locator("#decide .act.off", has_text="Confirm")
        await expect(own).to_contain_text("You have asked for it yourself")

        seen = await other.open("/worklist?kind=approvals")
        await seen.locator("tr", has_text="payout/p-1").get_by_role("link", name="payout/p-1").click()
        form = seen.locator("#second-1")
        await form.locator("summary").click()
        await form.locator("[name=reason]").fill("I have seen the slip")
        await form.get_by_role("button", name="Confirm").click()
        await seen.wait_for_url("**/runs/*?asked=*")
        await expect(seen.locator("#asked .state")).to_have_text("Accepted")
        await until(lambda: _is(shop, "p-1", "SUCCEEDED"), what="the confirmed act carried out")


async def test_an_act_that_nobody_carries_out_is_shown_as_open_and_what_others_wrote_is_text(
    shop: Shop,
) -> None:
    """No process of that service lives, and the order's name would be a script if a page let it."""
    away = Milepost(f"{shop.service.name}-away", sagas=[order], settings=shop.service.settings)
    bad = '"><script>alert(1)</script><b id=x>'
    async with shop.pool.acquire() as connection, connection.transaction():
        run = (await away.start(connection, order, PlaceOrder(order_id=bad))).id
    async with shop.by("ann") as window:
        page = await window.open(f"/runs/{run}")
        await act(page, "Cancel", bad, within="#acts", undo="no")
        await expect(page.locator("#asked .state")).to_have_text("Open")
        await expect(page.locator("#asked")).to_contain_text("nobody has carried it out yet")
        assert (await shop.pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run)) == "PENDING"
        for path in (f"/runs/{run}", "/worklist", "/runs"):
            page = await window.open(path)
            assert await page.locator("script:not([src]), b#x").count() == 0
        await expect(page.get_by_text("alert(1)").first).to_be_visible()
    await shop.pool.execute("DELETE FROM milepost.run WHERE id = $1", run)


async def test_of_two_who_retry_at_once_one_is_refused(shop: Shop) -> None:
    """Both have seen the step as it stood; it is tried once more, and the other one is told."""
    await shop.place("t-stuck")
    await until(shop.settled, within=30, what="one more in front of a person")
    run, step = shop.runs["t-stuck"], await shop.step("t-stuck", "close_order")
    asked = {"act": "retry", "reason": "now", "step": "close_order", "fence": str(step["fence"])}
    people = [await shop.web.person(name, Role.OPERATOR) for name in ("eve", "fay")]
    answers = await asyncio.gather(*(one.post(f"/runs/{run}/acts", data=asked) for one in people))
    assert [answer.status_code for answer in answers] == [303, 303]
    await until(lambda: _is(shop, "t-stuck", "SUCCEEDED"), what="the run on its way")
    states = await shop.pool.fetch("SELECT state FROM milepost.request WHERE run_id = $1 ORDER BY state", run)
    assert [row["state"] for row in states] == ["ACCEPTED", "REFUSED"]
    assert (await shop.step("t-stuck", "close_order"))["fence"] == step["fence"] + 1
    for one in people:
        await one.aclose()


async def test_an_act_on_many_is_shown_begun_paused_and_has_one_outcome_each(shop: Shop) -> None:
    stuck = [f"{letter}-stuck" for letter in "mnos"]
    for name in stuck:
        await shop.place(name)
    await until(shop.settled, within=30, what="four more in front of a person")
    held = "SELECT count(*) FROM milepost.step WHERE state = 'MANUAL_REQUIRED' AND code = 'BOOKS_CLOSED'"
    amount = await shop.pool.fetchval(held)
    async with shop.by("ann") as window:
        page = await window.open("/worklist?saga=order")
        await page.get_by_role("link", name="Act on many…").click()
        await page.select_option("#f-act", "skip")
        await page.fill("#f-code", "BOOKS_CLOSED")
        await page.get_by_role("button", name="Show what fits").click()
        await expect(page.locator(".lead-line")).to_contain_text(f"Skip {amount} items")
        assert await window.violations() == []
        await shop.place("q-stuck")
        await until(shop.settled, within=30, what="one more in front of a person")
        await page.fill("#bulk-reason", "accounting closes them by hand")
        await page.get_by_role("button", name=f"Skip {amount} items").click()
        await expect(page.locator(".note-box")).to_contain_text(f"It was {amount} and is {amount + 1} by now")
        window.said.clear()  # the browser says that the answer was 409
        assert await shop.pool.fetchval("SELECT count(*) FROM milepost.bulk") == 0

        await page.fill("#bulk-reason", "accounting closes them by hand")
        await page.fill("#bulk-rate", "1")
        await page.get_by_role("button", name=f"Skip {amount + 1} items").click()
        await page.wait_for_url("**/bulk/*-*")
        await page.locator("#steer-pause summary").click()
        await page.fill("#steer-pause-reason", "wait a moment")
        await page.locator("#steer-pause button").click()
        await expect(page.locator("#progress .state")).to_have_text("Paused")
        waiting = "SELECT count(*) FROM milepost.bulk_item WHERE state = 'WAITING'"
        assert await shop.pool.fetchval(waiting) > 0
        await page.locator("#steer-resume summary").click()
        await page.fill("#steer-resume-reason", "go on")
        await page.locator("#steer-resume button").click()
        await expect(page.locator("#progress .state")).to_have_text("Done", timeout=30000)
        assert await window.violations() == []
        outcomes = await shop.pool.fetch("SELECT outcome, count(*) FROM milepost.bulk_item GROUP BY outcome")
        assert {row["outcome"]: row["count"] for row in outcomes} == {"ACCEPTED": amount + 1}
        ended = await shop.pool.fetch(
            "SELECT r.key, r.state, s.state AS step FROM milepost.run AS r"
            " LEFT JOIN milepost.step AS s ON s.run_id = r.id AND s.name = 'close_order' WHERE r.key ~ '^[mnosq]-'"
        )
        assert {tuple(row) for row in ended} == {
            (name, "SUCCEEDED", "SKIPPED") for name in (*stuck, "q-stuck")
        }
        await expect(page.locator("#items tbody tr")).to_have_count(amount + 1)
        listed = await window.open("/bulk")
        await expect(listed.locator("tbody tr")).to_have_count(1)


async def test_a_critical_act_on_many_waits_for_a_second_person(shop: Shop) -> None:
    await shop.place("p-2")
    await until(shop.settled, within=30, what="a payout in front of a person")
    async with shop.by("ann") as window, shop.by("bob") as other:
        page = await window.open("/bulk/new?act=skip&saga=payout")
        await expect(page.locator("form.body")).to_contain_text("a second person, who is not you")
        await page.fill("#bulk-reason", "paid by hand")
        await page.locator("form.body button").click()
        await expect(page.locator("#progress .state")).to_have_text("Held")
        await expect(page.locator("#steer")).to_contain_text("You have begun it yourself")
        seen = await other.open("/worklist?kind=approvals")
        await seen.get_by_role("link", name="skip 1 item").click()
        await seen.locator("#steer-confirm summary").click()
        await seen.fill("#steer-confirm-reason", "seen on the slips")
        await seen.locator("#steer-confirm button").click()
        await until(lambda: _is(shop, "p-2", "SUCCEEDED"), within=20, what="what was confirmed carried out")
        row = await shop.pool.fetchrow(
            "SELECT by, confirmed_by FROM milepost.bulk WHERE act = 'skip' AND total = 1"
        )
        assert row is not None and tuple(row) == ("ann", "bob")


async def test_a_viewer_sees_why_nothing_can_be_done_and_no_payloads(shop: Shop) -> None:
    async with shop.by("vic", Role.VIEWER) as window:
        page = await window.open(f"/runs/{shop.runs['c-shut']}")
        await expect(page.locator("#decide").get_by_role("button", name="Approve")).to_be_disabled()
        await expect(page.locator("#decide")).to_contain_text("Not allowed: your roles here are: viewer")
        await expect(page.locator("#input pre")).not_to_contain_text("c-shut")
        # A failure's words may quote what was sent; its code tells enough.
        await expect(page.locator("#steps")).to_contain_text("CARRIER_CLOSED")
        await expect(page.get_by_text("takes no parcels")).to_have_count(0)
        assert await page.locator("main form").count() == 0
    person = await shop.web.person("vic", Role.VIEWER)
    answer = await person.post(
        f"/runs/{shop.runs['c-shut']}/acts", data={"act": "compensate", "reason": "let me"}
    )
    assert answer.status_code == 403 and "MP703" in answer.text
    kept = await shop.pool.fetchrow("SELECT outcome FROM milepost.audit WHERE actor = 'vic'")
    assert kept is not None and kept["outcome"] == "REFUSED"
    assert (await shop.run("c-shut"))["state"] == "MANUAL_REQUIRED"
    await person.aclose()


async def test_lists_follow_what_happens_and_are_walked_by_keys(shop: Shop) -> None:
    async with shop.by("ann") as window:
        page = await window.open("/runs")
        await expect(page.locator(".livedot")).to_have_text("live")
        await shop.place("z-new")
        await expect(page.locator("tr", has_text="order/z-new")).to_contain_text("Succeeded", timeout=15000)
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        assert await page.locator("tr.at").count() == 1
        await page.keyboard.press("k")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs/*-*")
        await page.keyboard.press("/")
        await page.keyboard.type(str(shop.runs["a-1"])[:18])
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.keyboard.press("Tab")
        await page.goto(f"{window.base}/runs?q=order/a-1")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.keyboard.press("Tab")
        await expect(page.locator("a.skip")).to_be_focused()
        await page.locator("button[data-copy]").first.wait_for()
        before = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.locator("[data-theme-switch]").click()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != before


async def test_the_overview_says_how_far_a_consumer_is_behind(shop: Shop) -> None:
    """Kafka says where its topic ends; the page does not wait for that, and shows it at its next look."""
    await shop.pool.execute(
        "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset)"
        " SELECT 'billing', $1, n, 0 FROM generate_series(0, 11) AS n",
        work_topic(shop.service.name, "default"),
    )
    async with shop.by("ann") as window:
        page = await window.open("/")
        behind = page.locator("#consumers tr", has_text="billing").locator("td").nth(1)

        async def told() -> bool:
            await page.reload()
            text = await behind.inner_text()
            return text.isdigit() and int(text) >= len(PLACED)

        await until(told, every=0.5, within=15, what="how many records billing is behind")
        assert await window.violations() == []


async def test_filters_are_kept_for_their_owner_and_lists_are_files(shop: Shop) -> None:
    async with shop.by("ann") as window, shop.by("bob") as other:
        page = await window.open("/runs?saga=order&state=person")
        await page.get_by_text("Save this filter").click()
        await page.fill("#filter-name", "orders that wait")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".chip[aria-current=true]")).to_contain_text("orders that wait")
        seen = await other.open("/runs")
        await expect(seen.get_by_text("orders that wait")).to_have_count(0)
        await page.get_by_role("button", name="Forget the filter").click()
        await page.wait_for_url("**/runs")
        assert await shop.pool.fetchval("SELECT count(*) FROM milepost.saved_filter") == 0

        rows = list(
            csv.DictReader(
                io.StringIO(await (await page.request.get(f"{window.base}/runs.csv?q=a-1")).text())
            )
        )
        assert [(row["saga"], row["key"], row["state"]) for row in rows] == [("order", "a-1", "SUCCEEDED")]
        whole = await (await page.request.get(f"{window.base}/runs/{shop.runs['a-1']}.json")).json()
        assert [step["name"] for step in whole["steps"]][:2] == ["reserve_stock", "charge_card"]
        waiting = await (await page.request.get(f"{window.base}/worklist.json")).json()
        assert {"order/c-shut", "order/i-lost"} <= {row["title"] for row in waiting}


async def _is(shop: Shop, name: str, state: str) -> bool:
    return bool((await shop.run(name))["state"] == state)


async def _asked_about_refund(shop: Shop, name: str) -> bool:
    row = await shop.step(name, "refund")
    return row is not None and row["asked"] is not None
