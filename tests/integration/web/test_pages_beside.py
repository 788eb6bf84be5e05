"""The pages beside the runs: what each shows and hides, and what their forms do, without a browser."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from milepost.recovery.bulk_carrying import carry, settle
from milepost.recovery.permissions import Grant, Role
from milepost.streams.database import Database

from tests.support.consoleweb import Web, console
from tests.support.house import ROOT
from tests.support.inbox import Effects, consumer_of, intake_of, record
from tests.support.letters import ONCE, Broken, keyed, raw

HTML = {"Accept": "text/html"}
SEEDED = (ROOT / "tests/support/sql/console_views.sql").read_text()
SIGNAL = "01980000-0000-7000-8000-000000000001"
REPLAY = "01990000-0000-7000-8000-000000000001"
PAGES = (
    "/unknown",
    "/letters",
    "/letters?status=ALL&since=2h",
    "/letters/1",
    "/holds",
    "/signals",
    "/signals?state=unmatched",
    f"/signals/{SIGNAL}",
    "/resources",
    "/resources?name=stock:tea",
    "/outbox",
    "/replay",
    f"/replay/{REPLAY}",
    "/audit",
    "/recovery",
    "/recovery?drift=UNKNOWN",
    "/runbooks",
    "/runbooks/worker_lost",
)


@pytest.fixture
async def web(database: Database, database_url: str) -> AsyncIterator[Web]:
    await database.pool.execute(SEEDED)
    broken = Broken(Effects(database.pool), {"o-0", "o-3"})
    held = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    odd = keyed(3, b"\xff\x00")
    odd.value = b"\x00\x01<script>\xff"
    await intake_of(held, database).handle(
        [
            keyed(0, b"a"),
            keyed(1, b"a"),
            odd,
            record(4, body={"order": "<script>alert(1)</script>", "amount": "x"}),
        ]
    )
    async with console(database_url) as web:
        yield web


async def shown(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await client.get(path, headers=HTML)
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:500]}"
    return answer.text


async def test_every_page_is_shown_and_hides_what_a_viewer_may_not_see(web: Web) -> None:
    async with await web.person("vic", Role.VIEWER) as viewer, await web.person("ann", Role.ADMIN) as admin:
        for path in (*PAGES, "/settings", "/permissions", "/audit/verify"):
            page = await shown(admin, path)
            assert "<script>alert" not in page and "</main>" in page, path
        for path in PAGES:
            page = await shown(viewer, path)
            assert "4242" not in page, path
        assert "4242" in await shown(admin, f"/signals/{SIGNAL}")
        letter = await shown(viewer, "/letters/1")
        assert "hidden: your roles do not show" in letter and "Your roles do not allow it here" in letter
        assert "o-0 is broken" not in letter and "o-0 is broken" not in await shown(viewer, "/letters")
        assert "o-0 is broken" in await shown(admin, "/letters") and "o-0 is broken" in await shown(
            admin, "/holds"
        )
        assert "&#34;order&#34;: &#34;o-0&#34;" in await shown(admin, "/letters/1")
        assert "00000000  00 01 3c 73" in await shown(admin, "/letters/3")
        value = await admin.get("/letters/3/value")
        assert (value.content, value.headers["content-type"]) == (
            b"\x00\x01<script>\xff",
            "application/octet-stream",
        )
        for path in ("/letters/3/value", "/letters/1/edit", "/settings"):
            await shown(viewer, path, 403)
        assert "postgresql://" in await shown(admin, "/settings")
        for path in ("/letters/99", "/letters/0", f"/replay/{SIGNAL}", f"/signals/{REPLAY}"):
            await shown(admin, path, 404)
        for path in ("/letters?since=never", "/letters?status=NOPE", "/audit?run=x", "/audit?before=x"):
            await shown(admin, path, 422)


async def test_who_may_see_one_tenant_sees_nothing_of_another(web: Web) -> None:
    async with await web.person("vic", Grant(Role.ADMIN, frozenset({"acme"}))) as vic:
        assert "o-2" in await shown(vic, "/unknown") and "o-1" not in await shown(vic, "/unknown")
        assert "No open letters" in await shown(vic, "/letters")
        await shown(vic, "/letters/1", 404)
        for path in ("/outbox", "/replay", "/settings", "/audit/verify"):
            await shown(vic, path, 403)
        refused = await vic.post("/letters/1/act", data={"act": "redrive", "reason": "r"}, headers=HTML)
        assert refused.status_code == 404
        ticked = await vic.post("/letters/acts", data={"act": "ignore", "reason": "r", "one": ["1", "3"]})
        assert ticked.status_code == 200
        assert (
            await web.pool.fetchval("SELECT count(*) FROM milepost.dead_letter WHERE status <> 'OPEN'") == 0
        )
    async with await web.person("eve") as eve:
        for path in ("/letters", "/unknown", "/audit", "/signals", "/resources"):
            await shown(eve, path, 403)


async def test_acts_change_the_row_and_the_page_says_what_the_row_says(web: Web) -> None:
    letters = "SELECT status, asked_by, resolved_by FROM milepost.dead_letter WHERE n = $1"
    async with await web.person("ann", Role.OPERATOR) as ann, await web.person("vic", Role.VIEWER) as vic:
        refused = await vic.post("/letters/1/act", data={"act": "redrive", "reason": "r"}, headers=HTML)
        assert (refused.status_code, "MP703" in refused.text) == (403, True)
        without = await ann.post("/letters/1/act", data={"act": "redrive", "reason": " "}, headers=HTML)
        assert (without.status_code, "MP779" in without.text) == (422, True)
        bare = web.client()
        bare.cookies = ann.cookies
        forged = await bare.post("/letters/1/act", data={"act": "redrive", "reason": "r"})
        assert (forged.status_code, forged.json()["code"]) == (403, "MP704")
        assert (await web.pool.fetchrow(letters, 1))["status"] == "OPEN"
        done = await ann.post("/letters/1/act", data={"act": "redrive", "reason": "mended"})
        assert (done.status_code, done.headers["location"]) == (303, "/letters/1")
        assert tuple(await web.pool.fetchrow(letters, 1)) == ("RETRY_PENDING", "ann", None)
        assert "asked for by ann" in await shown(ann, "/letters/1")
        again = await ann.post("/letters/1/act", data={"act": "redrive", "reason": "mended"}, headers=HTML)
        assert (again.status_code, "already RETRY_PENDING" in again.text) == (409, True)
        edit = await ann.post(
            "/letters/3/edit", data={"value": "{", "reason": "typo", "key": "k"}, headers=HTML
        )
        assert (edit.status_code, "MP770" in edit.text, "typo" in edit.text) == (422, True, True)
        form = {"value": '{"order": "o-9"}', "key": "0xff00", "reason": "typo", "redrive": "yes"}
        form["headers"] = "ce_type: test.paid\nce_source: /test\nce_specversion: 1.0"
        made = await ann.post("/letters/3/edit", data=form, headers=HTML)
        assert (made.status_code, made.headers.get("location")) == (303, "/letters/5"), made.text[:3000]
        assert "Made from" in await shown(ann, "/letters/5") and "/letters/5" in await shown(
            ann, "/letters/3"
        )
        assert "is ignored already" in await shown(ann, "/letters/3")
        asked = {"act": "ignore", "reason": "all of them", "chosen": "code=INVALID_BODY"}
        preview = await ann.post("/letters/acts", data=asked)
        shown_ = re.search(r'name="shown" value="([0-9a-f]+)"', preview.text)
        assert preview.status_code == 200 and shown_ is not None, preview.text
        other = await ann.post("/letters/acts", data=asked | {"shown": "0" * 32})
        assert "What fits has changed meanwhile" in other.text
        assert await web.pool.fetchval("SELECT count(*) FROM milepost.bulk") == 0, (
            "nothing before it was shown"
        )
        begun = await ann.post("/letters/acts", data=asked | {"shown": shown_[1]})
        assert begun.status_code == 303, begun.text
        bulk = begun.headers["location"]
        for what, state in (("pause", "Paused"), ("resume", "Running")):
            done = await ann.post(f"{bulk}/control", data={"what": what, "reason": "a look first"})
            assert done.status_code == 303 and f">{state}</span>" in await shown(ann, bulk)
        assert (await vic.post(f"{bulk}/control", data={"what": "stop", "reason": "no"})).status_code == 403
        await carry_out(web)
        assert "1 of 1 done" in await shown(ann, bulk) and 'href="/letters/4"' in await shown(ann, bulk)
        assert tuple(await web.pool.fetchrow(letters, 4)) == ("IGNORED", None, "ann")
    audit = await web.pool.fetch("SELECT actor, act, outcome FROM milepost.audit ORDER BY id")
    assert [tuple(row) for row in audit] == [
        ("vic", "console.redrive", "REFUSED"),
        ("ann", "letter.redrive", "DONE"),
        ("ann", "letter.edit", "DONE"),
        ("ann", "bulk.ignore", "DONE"),
        ("ann", "bulk.pause", "DONE"),
        ("ann", "bulk.resume", "DONE"),
        ("vic", "console.control_bulk", "REFUSED"),
        ("ann", "letter.ignore", "DONE"),
    ]


async def carry_out(web: Web) -> None:
    """Do what a process with the role upkeep does."""
    async with web.pool.acquire() as connection:
        while await carry(raw(connection)):
            pass
        for row in await connection.fetch("SELECT id FROM milepost.bulk WHERE state = 'RUNNING'"):
            await settle(raw(connection), row["id"])


async def test_lists_are_given_as_files(web: Web) -> None:
    async with await web.person("ann", Role.ADMIN) as ann:
        for name in ("unknown", "letters", "holds", "signals", "resources", "outbox", "replay", "audit"):
            rows = (await ann.get(f"/{name}.json")).json()
            table = await ann.get(f"/{name}.csv")
            assert table.headers["content-type"] == "text/csv; charset=utf-8"
            assert len(list(csv.DictReader(io.StringIO(table.text)))) == len(rows), name
        letters = json.loads((await ann.get("/letters.json?consumer=c")).text)
        assert [row["n"] for row in letters] == [1, 2, 3, 4]


async def test_a_replay_is_refused_with_the_reason_and_applied_by_nobody_but_an_admin(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILEPOST_APP", raising=False)
    form = {"consumer": "c", "topic": "t", "since": "1h", "reason": "lost", "act": "replay_apply"}
    async with await web.person("ann", Role.OPERATOR) as ann, await web.person("adm", Role.ADMIN) as admin:
        refused = await ann.post("/replay", data=form, headers=HTML)
        assert (refused.status_code, "MP660" in refused.text) == (403, True)
        nothing = await admin.post("/replay", data=form, headers=HTML)
        assert "this console was told of no application" in nothing.text
        for change in (
            {"consumer": "--apply"},
            {"since": "-x"},
            {"topic": " "},
            {"since": "soon"},
            {"until": "x"},
        ):
            wrong = await admin.post("/replay", data=form | {"act": "replay_dry_run"} | change, headers=HTML)
            assert (wrong.status_code, "It was not begun" in wrong.text) == (422, True), change
    assert web.app.state.replays.jobs == []
    assert await web.pool.fetchval("SELECT count(*) FROM milepost.audit WHERE outcome = 'REFUSED'") == 2
