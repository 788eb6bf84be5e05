"""Dead letters, the outbox and replays as people mend them in a browser, carried out by the service's own process."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from milepost.recovery.permissions import Role
from playwright.async_api import Browser, Page, expect

from tests.support import servers
from tests.support.browser import DRESSES, Reader, chromium, needs_browser, reader
from tests.support.consoleserved import listening
from tests.support.consoleweb import Web, console
from tests.support.house import ROOT
from tests.support.letters import raw
from tests.support.letters_world import World, opened_world
from tests.support.outbox import Noted, alter_topic, arrived, make_topic, publish_noted, until_arrived
from tests.support.process import served
from tests.support.waiting import until

pytestmark = [needs_browser, pytest.mark.asyncio(loop_scope="module")]

#: Tables of a page that are wider than their place.
CUT = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
SIGNAL, REPLAY = "01980000-0000-7000-8000-000000000001", "01990000-0000-7000-8000-000000000001"


@dataclass
class Bench:
    """A service whose letters are mended, its console, and a browser.

    Attributes:
        parked: An event that is too large for its topic.
        bills: That topic.
    """

    world: World
    web: Web
    browser: Browser
    pool: asyncpg.Pool[Any]
    bills: str
    parked: UUID
    tokens: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def by(self, name: str, role: Role = Role.ADMIN, **dress: Any) -> AsyncIterator[Reader]:
        if name not in self.tokens:
            self.tokens[name] = await self.web.token(name, role)
        async with reader(self.browser, self.web.base, self.tokens[name], **dress) as window:
            yield window

    async def letter(self, order: str) -> Any:
        """The youngest letter about an order."""
        found = await self.pool.fetchrow(
            "SELECT * FROM milepost.dead_letter WHERE convert_from(value, 'UTF8') LIKE $1 ORDER BY n DESC LIMIT 1",
            f'%"{order}"%',
        )
        assert found is not None, order
        return found

    async def effects(self, order: str) -> int:
        found: int = await self.pool.fetchval("SELECT count(*) FROM effect WHERE text = $1", order)
        return found

    async def audited(self, act: str) -> Any:
        """The last entry about an act."""
        found = "SELECT actor, reason, outcome FROM milepost.audit WHERE act = $1 ORDER BY id DESC LIMIT 1"
        return await self.pool.fetchrow(found, act)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(
    postgres_server: servers.DatabaseServer, database_template: str, kafka_server: servers.MessageServer
) -> AsyncIterator[Bench]:
    prefix, kafka = f"t{secrets.token_hex(5)}", kafka_server.bootstrap
    with (
        servers.fresh_database(postgres_server, database_template) as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        async with opened_world(kafka, prefix, url) as world:
            for name, value in world.env.items():
                patch.setenv(name, value)  # what a replay's process is to have
            pool = world.database.pool
            await pool.execute((ROOT / "tests/support/sql/console_views.sql").read_text())
            await pool.execute("DELETE FROM milepost.outbox")
            bills = f"{prefix}.bills"
            await make_topic(kafka, bills, max_message_bytes="20000")
            await world.broken("o-2", "o-4", "o-6", "o-7")
            async with (
                served(world.env, "consumers,relay,upkeep"),
                console(url) as web,
                listening(web),
                chromium() as browser,
            ):
                async with pool.acquire() as connection:
                    (parked,) = await publish_noted(
                        raw(connection), bills, [Noted(key="k", text="x" * 30_000)]
                    )
                await world.send("o-1", "o-2", "o-4", "o-6", "o-7")
                await world.send("o-3", key=b"o-2")
                await world.send("<script>window.hacked = 1</script>")
                await world.letters(6)
                yield Bench(world, web, browser, pool, bills, parked)


async def do(page: Page, label: str, reason: str) -> None:
    """Open an act, say why, and send it."""
    form = page.locator("details.act", has=page.get_by_text(label, exact=True)).first
    await form.locator("summary").click()
    await form.locator("[name=reason]").fill(reason)
    await form.get_by_role("button", name=label).click()


async def mended(window: Reader, book: str, label: str, code: str, amount: int = 1) -> None:
    """Do a step of a runbook on the letters that its page counts: shown first, followed, and then gone from there."""
    said = f"{amount} open letter{'s' if amount > 1 else ''} {code}"
    page = await window.open(f"/runbooks/{book}")
    await expect(page.locator("#steps")).to_contain_text(said)
    await do(page, label, "mended in 1.5")
    await expect(page.locator("h1")).to_contain_text(f"Redrive {amount} letter")
    await page.get_by_role("button", name="Redrive them").click()
    await page.wait_for_url("**/bulk/*")
    await expect(page.locator("#progress")).to_contain_text(f"{amount} of {amount} done", timeout=20_000)
    await expect(page.locator("#items")).to_contain_text("Resolved")
    page = await window.open(f"/runbooks/{book}")
    await expect(page.locator("#steps")).not_to_contain_text(said)


async def test_every_page_in_every_dress(bench: Bench) -> None:
    """Every page in light, as axe sees it; in other dresses those whose parts differ, and none wider than a phone."""
    letter = (await bench.letter("o-2"))["n"]
    mixed = ["/letters", f"/letters/{letter}", "/outbox", "/settings"]
    others = [
        *(
            "/unknown",
            "/letters?code=NOTHING",
            f"/letters/{letter}/edit",
            "/holds",
            "/signals",
            f"/signals/{SIGNAL}",
        ),
        *(
            "/resources?name=stock:tea",
            "/replay",
            f"/replay/{REPLAY}",
            "/audit",
            "/audit/verify",
            "/permissions",
        ),
        *("/", "/worklist", "/recovery", "/runbooks", "/bulk/new"),
    ]
    for name, dress in DRESSES.items():
        async with bench.by("ann", **dress) as window:
            for path in mixed[:2] if name == "dark" else [*mixed, *others]:
                page = await window.open(path)
                await expect(page.locator("h1")).to_be_visible()
                assert await page.evaluate("window.hacked") is None
                if name == "phone":
                    assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path
                    assert await page.evaluate(CUT) == 0, f"{path}: a table is wider than the phone"
                if name == "light" or path in mixed[:2]:
                    assert await window.violations() == [], f"{name} {path}"


async def test_a_letter_is_redriven_and_the_page_follows_what_becomes_of_it(bench: Bench) -> None:
    letter, behind = await bench.letter("o-2"), await bench.letter("o-3")
    async with bench.by("ann") as window:
        page = await window.open(f"/letters/{behind['n']}")
        disabled = page.locator("#acts").get_by_role("button", name="Redrive")
        await expect(disabled).to_be_disabled()
        await expect(page.locator("#acts")).to_contain_text(f"Letter {letter['n']} of its key comes first")
        await page.keyboard.press("g")
        await page.keyboard.press("h")
        await page.wait_for_url("**/holds")
        await expect(page.locator("#held")).to_contain_text("o-2")
        await page.get_by_role("link", name=f"Look at letter {letter['n']}").click()
        await bench.world.broken("o-4", "o-6", "o-7")
        await do(page, "Redrive", "mended in 1.4")
        await expect(page.locator("#state .state")).to_have_text("Resolved", timeout=15_000)
        await expect(page.locator("#audits")).to_contain_text("mended in 1.4")
    found = await bench.letter("o-2")
    assert (found["status"], found["resolved_by"]) == ("RESOLVED", "ann")

    async def followed() -> bool:
        return await bench.effects("o-3") == 1 and await bench.effects("o-2") == 1

    await until(followed, within=20, what="both effects, once")
    assert tuple(await bench.audited("letter.redrive")) == ("ann", "mended in 1.4", "DONE")


async def test_an_edit_shows_what_was_wrong_then_makes_a_letter_that_is_applied_once(bench: Bench) -> None:
    letter = await bench.letter("o-4")
    async with bench.by("olaf", Role.OPERATOR) as window:
        page = await window.open(f"/letters/{letter['n']}")
        await page.get_by_role("link", name="Edit and redrive").click()
        await expect(page.locator("#edit-value")).to_have_value('{"order": "o-4", "amount": 1}')
        await page.fill("#edit-value", '{"order": "o-4')
        await page.fill("#edit-reason", "the sender's typo")
        await page.get_by_role("button", name="Make the new letter").click()
        await expect(page.locator("main")).to_contain_text("MP770")
        await expect(page.locator("#edit-reason")).to_have_value("the sender's typo")
        window.said.clear()  # the browser notes that the answer was 422
        await page.fill("#edit-value", '{"order": "o-4-mended", "amount": 1}')
        await page.get_by_role("button", name="Make the new letter").click()
        await expect(page.locator("main")).to_contain_text("Made from")
        await expect(page.locator("#state .state")).to_have_text("Resolved", timeout=15_000)
        await page.get_by_role("link", name=f"letter {letter['n']}").click()
        await expect(page.locator("main")).to_contain_text("This one stays as it was")
    old, new = await bench.letter("o-4"), await bench.letter("o-4-mended")
    assert (old["value"], old["status"], old["edited_as"]) == (letter["value"], "IGNORED", new["id"])
    assert (new["edit_of"], new["status"], new["event_id"] != old["event_id"]) == (
        old["id"],
        "RESOLVED",
        True,
    )
    assert (await bench.effects("o-4-mended"), await bench.effects("o-4")) == (1, 0)
    assert tuple(await bench.audited("letter.edit")) == ("olaf", "the sender's typo", "DONE")


async def test_ticked_letters_and_those_of_a_filter_have_an_outcome_each(bench: Bench) -> None:
    async with bench.by("olaf", Role.OPERATOR) as window:
        page = await window.open("/letters")
        n = (await bench.letter("o-6"))["n"]
        await page.get_by_label(f"Letter {n}", exact=True).check()
        await page.fill("#many-reason", "a test order")
        await page.get_by_role("button", name="Ignore", exact=True).click()
        await expect(page.locator("#outcomes")).to_contain_text("ignored")
        assert (await bench.letter("o-6"))["status"] == "IGNORED"
        n = (await bench.letter("o-7"))["n"]
        await window.open("/letters?key=o-7")
        await page.fill("#many-reason", "another one")
        await page.get_by_role("button", name="Redrive", exact=True).click()
        await expect(page.locator("#preview")).to_contain_text("HANDLER_FAILED")
        assert (await bench.letter("o-7"))["status"] == "OPEN", "nothing before it is confirmed"
        await bench.world.broken()
        await page.get_by_role("button", name="Redrive them").click()
        await page.wait_for_url("**/bulk/*")
        await expect(page.locator("#progress")).to_contain_text("1 of 1 done", timeout=20_000)
        await expect(page.locator("#items")).to_contain_text("Resolved")
        assert await bench.effects("o-7") == 1
    async with bench.by("vic", Role.VIEWER) as window:
        page = await window.open(f"/letters/{n}")
        await expect(page.locator("#acts")).to_contain_text("Your roles do not allow it here")
        await expect(page.locator("#value")).to_contain_text("hidden")


async def test_an_event_that_could_not_be_sent_is_unparked_from_the_runbook(bench: Bench) -> None:
    async with bench.by("ann") as window:
        page = await window.open("/outbox")
        await page.get_by_role("link", name="Look, unpark or ignore").click()
        row = page.locator("#list tr[data-row]", has_text=bench.bills)
        await row.get_by_role("link").first.click()
        await expect(page.locator("main")).to_contain_text("outbox row")
        assert (await arrived(bench.world.kafka, bench.bills)).ids() == []
        await alter_topic(bench.world.kafka, bench.bills, max_message_bytes="1000000")
        await mended(window, "outbox_parked", "Unpark", "TOO_LARGE of relay")
    found = await until_arrived(bench.world.kafka, bench.bills, [bench.parked])
    assert found.ids() == [bench.parked], "once, on the topic"
    assert tuple(await bench.audited("outbox.unpark")) == ("ann", "mended in 1.5", "DONE")


async def test_a_dry_run_shows_what_is_missing_and_an_admin_applies_it_once(bench: Bench) -> None:
    await bench.pool.execute(
        "DELETE FROM milepost.inbox WHERE event_id IN (SELECT event FROM effect WHERE text = 'o-1')"
    )
    await bench.pool.execute("DELETE FROM effect WHERE text = 'o-1'")
    consumer = f"{bench.world.prefix}-books"
    async with bench.by("olaf", Role.OPERATOR) as window:
        page = await window.open("/replay")
        await expect(page.get_by_role("button", name="Apply what is missing")).to_be_disabled()
        await page.fill("#r-consumer", consumer)
        await page.fill("#r-topic", bench.world.topic)
        await page.fill("#r-since", "1h")
        await page.get_by_role("button", name="Look").click()
        await page.wait_for_url("**/replay/*-*", timeout=20_000)
        await expect(page.locator("#state")).to_contain_text("done", timeout=20_000)
        await expect(page.locator("#findings")).to_contain_text("missing")
        looked = page.url
    assert await bench.effects("o-1") == 0, "a dry run changes nothing"
    async with bench.by("ann") as window:
        page = await window.open(looked.removeprefix(bench.web.base))
        await do(page, "Apply what is missing", "lost on Monday")
        await page.wait_for_url(lambda url: url != looked, timeout=30_000)

        async def applied() -> bool:
            return await bench.effects("o-1") == 1

        await until(applied, within=30, what="the missing effect")
        await expect(page.locator("#state")).to_contain_text("Replayed", timeout=20_000)
    assert await bench.effects("o-1") == 1
    assert tuple(await bench.audited("replay")) == ("ann", "lost on Monday", "DONE")
    counts = await bench.pool.fetchval(
        "SELECT counts FROM milepost.replay WHERE apply ORDER BY id DESC LIMIT 1"
    )
    assert json.loads(counts)["replayed"] == 1


async def test_a_replay_that_was_interrupted_goes_on_from_its_page(bench: Bench) -> None:
    """As one stands whose process was killed: it is begun, has told nothing for a while, and has not ended."""
    replay = await bench.pool.fetchval(
        """
        UPDATE milepost.replay
        SET nexts = begins, counts = '{}', findings = '[]', finished_at = NULL,
            at = milepost.clock() - interval '5 minutes'
        WHERE id = (SELECT id FROM milepost.replay WHERE NOT apply AND consumer <> 'c' ORDER BY id LIMIT 1) RETURNING id
        """
    )
    async with bench.by("olaf", Role.OPERATOR) as window:
        page = await window.open(f"/replay/{replay}")
        await expect(page.locator("#state")).to_contain_text("interrupted")
        await page.fill("#resume-reason", "the process was killed")
        await page.get_by_role("button", name="Go on with it").click()
        await expect(page.locator("#state")).to_contain_text("done", timeout=20_000)
        await expect(page.locator("#state")).to_contain_text("7 of 7")
    assert await bench.pool.fetchval(
        "SELECT finished_at IS NOT NULL FROM milepost.replay WHERE id = $1", replay
    )


async def test_the_audit_page_verifies_what_people_did(bench: Bench) -> None:
    async def sealed() -> bool:
        return not await bench.pool.fetchval("SELECT count(*) FROM milepost.audit_unsealed")

    await until(sealed, within=20, what="every entry sealed")
    async with bench.by("ann") as window:
        page = await window.open("/audit?act=letter")
        await expect(page.locator("#entries")).to_contain_text("letter.edit")
        await window.open("/audit/verify")
        await expect(page.locator("main")).to_contain_text("Every sealed entry says what it said")


async def test_the_letters_of_one_cause_are_redriven_from_the_runbook(bench: Bench) -> None:
    await bench.world.broken("o-8")
    await bench.world.send("o-8")
    found = "SELECT count(*) FROM milepost.dead_letter WHERE status = 'OPEN' AND code = 'HANDLER_FAILED'"
    of_it = " AND convert_from(value, 'UTF8') LIKE '%\"o-8\"%'"

    async def there() -> bool:
        return bool(await bench.pool.fetchval(found + of_it))

    await until(there, within=30, what="the letter")
    amount = await bench.pool.fetchval(found)
    async with bench.by("vic", Role.VIEWER) as window:
        page = await window.open("/runbooks/letter_open")
        await expect(page.locator("#steps").get_by_role("button", name="Redrive").first).to_be_disabled()
        await expect(page.locator("#steps")).to_contain_text("Your roles do not allow it here")
        assert await window.violations() == []
    await bench.world.broken()
    async with bench.by("olaf", Role.OPERATOR) as window:
        await mended(window, "letter_open", "Redrive", "HANDLER_FAILED", amount)
        assert await window.violations() == []
    assert await bench.effects("o-8") == 1
    assert tuple(await bench.audited("letter.redrive")) == ("olaf", "mended in 1.5", "DONE")
