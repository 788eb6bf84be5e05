"""The page of recovery: what has drifted, what is proposed and decided; repairs and answers by who may."""

from __future__ import annotations

import re

import httpx
from milepost.recovery.permissions import Grant, Role
from milepost.recovery.proposing import DriftProposals
from milepost.sagas.facts import Claim, TryFailed

from tests.support.consoleweb import console
from tests.support.drifting import ROWS, once, paid, parcel, sent, world
from tests.support.engine import rig
from tests.support.house import ROOT

HTML = {"Accept": "text/html"}
LETTER = (
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, key, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable) VALUES (gen_random_uuid(), 'consumer:billing', gen_random_uuid(),"
    " 'orders', '\\x01', '[]', 'HANDLE', 'HANDLER_FAILED', '', 3, now() - interval '2 hours', now(), true)"
)


async def shown(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await client.get(path, headers=HTML)
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:500]}"
    return answer.text


async def test_what_has_drifted_is_seen_by_all_and_repaired_by_who_may(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at, console(database_url) as web:
        run = await at.begin("o-<b>1", at.dead)
        vic, ann = await web.person("vic", Role.VIEWER), await web.person("ann", Role.OPERATOR)
        other = await web.person("eve", Grant(Role.OPERATOR, sagas=frozenset({"order"})))
        page = await shown(vic, "/recovery")
        assert "parcel/o-&lt;b&gt;1 send" in page and "/runbooks/worker_lost" in page
        assert "Your roles do not allow it here" in page
        assert "parcel/" not in await shown(other, "/recovery"), "what is of another saga is not seen"
        wish = {"reason": "its node is gone", "drift": "WORKER_LOST"}
        assert (await vic.post("/recovery", data=wish, headers=HTML)).status_code == 403
        nothing = await other.post("/recovery", data={"reason": "all"}, headers=HTML)
        assert "Nothing to do" in nothing.text and await it.value(ROWS) == 0
        assert (await ann.post("/recovery", data={"reason": " "}, headers=HTML)).status_code == 422
        done = await ann.post("/recovery", data=wish, headers=HTML)
        assert done.status_code == 200 and "Repaired" in done.text and await at.woken() == {run}
        entry = await it.row("SELECT actor, kind, evidence FROM milepost.audit WHERE act = 'reconcile.retry'")
        assert (entry["actor"], entry["kind"]) == ("ann", "PERSON") and "its node is gone" in entry[
            "evidence"
        ]
        after = await shown(vic, "/recovery")
        assert "Nothing has drifted" in after and "due now" in after and "parcel/o-&lt;b&gt;1" in after
        assert "due now" not in await shown(vic, "/recovery?drift=UNKNOWN")
        await shown(vic, "/recovery?drift=FROB", 404)


async def test_a_proposal_is_answered_once_by_who_may(database_url: str) -> None:
    async with rig(database_url) as it, console(database_url) as web:
        await it.database.pool.execute(LETTER)
        ann, pat = await web.person("ann", Role.OPERATOR), await web.person("pat", Role.APPROVER)
        done = await ann.post("/recovery", data={"reason": "look"}, headers=HTML)
        assert "Proposed" in done.text
        page = await shown(pat, "/recovery")
        (proposal,) = set(re.findall(r'id="proposal-([0-9a-f-]+)"', page))
        yes = {"act": "accept_proposal", "reason": "mended in 1.4"}
        assert (await ann.post(f"/proposals/{proposal}", data=yes, headers=HTML)).status_code == 403
        assert (await pat.post(f"/proposals/{proposal}", data=yes, headers=HTML)).status_code == 303
        assert (await pat.post(f"/proposals/{proposal}", data=yes, headers=HTML)).status_code == 409
        (found,) = await once(it, proposals=DriftProposals())
        assert found.outcome == "REPAIRED"
        assert await it.value("SELECT asked_by FROM milepost.dead_letter") == "pat"
        assert f"proposal-{proposal}" not in await shown(pat, "/recovery")


async def test_every_runbook_is_a_page(database_url: str) -> None:
    async with console(database_url) as web:
        vic = await web.person("vic", Role.VIEWER)
        index = await shown(vic, "/runbooks")
        links = set(re.findall(r'href="(/runbooks/[a-z_]+)"', index))
        assert len(links) == 12
        for link in links:
            text = await shown(vic, link)
            assert "<h2>By hand</h2>" in text and "<code>milepost " in text, link


def step(page: str, words: str) -> str:
    """The part of a runbook's page that is about one step, by what it says of it."""
    parts = re.split(r'<div class="body" id="step-\d+-of">', page)
    (found,) = [part for part in parts[1:] if words in part] or [page]
    return found.split("</section>")[0]


async def test_a_runbook_repairs_its_own_kind_and_says_how_much_there_is(database_url: str) -> None:
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at, console(database_url) as web:
        vic, ann = await web.person("vic", Role.VIEWER), await web.person("ann", Role.OPERATOR)
        nothing = step(await shown(ann, "/runbooks/worker_lost"), "of this kind")
        assert "0 things of this kind now" in nothing and "Nothing has drifted so now." in nothing
        runs = set(await at.many(["o-1", "o-2"], at.dead))
        other = await at.begin("o-3")
        await at.lose(other)
        await sent(it)
        assert "Your roles do not allow it here" in await shown(vic, "/runbooks/worker_lost")
        there = step(await shown(ann, "/runbooks/worker_lost"), "of this kind")
        assert "2 things of this kind now, of which 2 can be repaired at once" in there
        assert 'name="drift" value="WORKER_LOST"' in there and "disabled" not in there
        wish = {"reason": "its node is gone", "drift": "WORKER_LOST"}
        assert "Repaired" in (await ann.post("/recovery", data=wish, headers=HTML)).text
        assert await at.woken() == runs, "what was not told is another runbook's"
        assert "1 thing of this kind now" in await shown(ann, "/runbooks/not_told")


async def test_a_runbook_asks_about_unknown_outcomes_at_once(database_url: str) -> None:
    saga = paid()
    async with rig(database_url, saga) as it, world(it, saga) as at, console(database_url) as web:
        run = await at.begin("o-1")
        change = await it.engine.change(run, Claim("charge", at.live))
        assert change is not None and change.decision.claimed is not None
        await it.engine.change(
            run, TryFailed("charge", change.decision.claimed.fence, "unknown", "TIMEOUT", "")
        )
        await it.database.pool.execute("UPDATE milepost.step SET wake_at = now() + interval '1 hour'")
        ann = await web.person("ann", Role.OPERATOR)
        assert "1 thing of this kind now, of which 1 can be" in await shown(ann, "/runbooks/unknown")
        wish = {"reason": "the bank is back", "drift": "UNKNOWN"}
        assert "Repaired" in (await ann.post("/recovery", data=wish, headers=HTML)).text
        assert await at.woken() == {run}


async def test_a_runbook_opens_the_acts_on_many_with_what_fits(database_url: str) -> None:
    async with rig(database_url) as it, console(database_url) as web:
        bob, bot = await web.person("bob", Role.OPERATOR), await web.program("bot", Role.AGENT)
        assert "no undo has failed for good" in await shown(bob, "/runbooks/undo_stopped")
        for name in ("console_runs", "console_trouble"):
            await it.database.pool.execute((ROOT / f"tests/support/sql/{name}.sql").read_text())
        await it.database.pool.execute(
            "UPDATE milepost.run SET state = 'COMPENSATION_FAILED' WHERE id IN"
            " (SELECT run_id FROM milepost.step WHERE state = 'COMPENSATION_FAILED')"
        )
        undo = step(await shown(bob, "/runbooks/undo_stopped"), "failed for good")
        (path,) = re.findall(r'href="(/bulk/new[^"]+)"', undo)
        assert "2 items of runs of which an undo failed for good" in undo
        assert "Retry 2 items" in await shown(bob, path.replace("&amp;", "&"))
        assert "Acts on many are a person" in await shown(bot, "/runbooks/undo_stopped")
        letters = await shown(bob, "/runbooks/letter_open")
        assert "1 open letter KeyError of billing, topic orders" in letters and "TOO_LARGE" not in letters
        parked = await shown(bob, "/runbooks/outbox_parked")
        assert "2 open letters TOPIC_MISSING of relay" in parked and "KeyError" not in parked
        (chosen,) = re.findall(r'name="chosen" value="([^"]+)"', step(parked, "TOPIC_MISSING"))
        wish = {"act": "redrive", "chosen": chosen.replace("&amp;", "&"), "reason": "made the topic"}
        asked = await bob.post("/letters/acts", data=wish, headers=HTML)
        assert (
            "Redrive 2 letters?" in asked.text and await it.value("SELECT count(*) FROM milepost.bulk") == 0
        )
        assert "no such letter is open" in await shown(bob, "/runbooks/key_held")
