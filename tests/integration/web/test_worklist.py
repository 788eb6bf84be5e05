"""The worklist's page: one figure everywhere, each cause once, words that can be read, and a next step for each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from milepost.console.views import live
from milepost.console.web.rendering import said
from milepost.recovery.permissions import Role
from milepost.streams.database import Database

from tests.support.consoleweb import Web, console
from tests.support.house import ROOT
from tests.support.inbox import Effects, consumer_of, intake_of
from tests.support.letters import ONCE, Broken, keyed

SEEDED = (ROOT / "tests/support/sql/console_views.sql").read_text()
BADGE = re.compile(r'Worklist<span class="count person">([^<]+)</span>')
ALL = re.compile(r'All <span class="count">([^<]+)</span>')
#: A minute without any process.
LATER = (
    "UPDATE milepost.run SET wake_at = milepost.clock() - interval '1 minute'",
    "UPDATE milepost.worker SET expires_at = milepost.clock() - interval '1 minute'",
)
FIGURE = re.compile(r'On the worklist</span><span class="value">([^<]+)</span>')
ROWS = re.compile(r'<tr data-row="([^"]+)">(.*?)</tr>', re.DOTALL)


@pytest.fixture
async def web(database: Database, database_url: str) -> AsyncIterator[Web]:
    """Runs in doubt and in front of a person, rows that nobody looks at, a held key, an unsent event."""
    for statement in (SEEDED, *LATER):
        await database.pool.execute(statement)
    broken = Broken(Effects(database.pool), {"o-0"})
    held = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    await intake_of(held, database).handle([keyed(0, b"a"), keyed(1, b"a")])
    async with console(database_url) as web:
        yield web


async def shown(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
    return answer.text


async def test_the_menu_the_page_and_the_overview_say_the_same_figure(web: Web) -> None:
    async with await web.person("ann", Role.ADMIN) as ann:
        page, home = await shown(ann, "/worklist"), await shown(ann, "/")
        listed = ROWS.findall(page)
        assert any(id.startswith("trouble:") for id, _ in listed), "what stands still is listed, too"
        told = [BADGE.findall(page), ALL.findall(page), BADGE.findall(home), FIGURE.findall(home)]
        assert told == [[str(len(listed))]] * 4
        narrow = await shown(ann, "/worklist?kind=letters")
        assert BADGE.findall(narrow) == ALL.findall(narrow) == [str(len(listed))]
        assert BADGE.findall(await shown(ann, "/worklist?saga=order")) == [], "the menu says it of everything"


async def test_one_cause_is_one_row_and_every_row_has_a_next_step(web: Web) -> None:
    async with await web.person("ann", Role.ADMIN) as ann:
        rows = dict(ROWS.findall(await shown(ann, "/worklist")))
        given_up = await shown(ann, "/unknown")
    assert 'href="/runs/01970000-0000-7000-8000-000000000003#decide-charge">Decide</a>' in given_up
    letters = [row for id, row in rows.items() if id.startswith("letters:")]
    assert len(letters) == 1 and "1 letter, 1 behind" in letters[0], (
        "what waits for its turn is no cause of its own"
    )
    assert not [id for id in rows if id.startswith(("trouble:hold", "trouble:outbox_parked"))]
    assert all('class="button mini"' in row for row in rows.values())
    unknown = next(row for id, row in rows.items() if id.endswith("0001:charge"))
    assert 'href="/unknown#01970000-0000-7000-8000-000000000001-charge"' in unknown
    still = next(row for id, row in rows.items() if id.startswith("trouble:step_stale"))
    assert 'href="/runbooks/worker_lost"' in still and "step_stale" not in still.replace(
        "trouble:step_stale", ""
    )


async def test_commands_are_shown_as_code_and_instants_in_the_readers_time(web: Web) -> None:
    async with await web.person("ann", Role.ADMIN) as ann:
        page = await shown(ann, "/worklist")
        assert "<code>milepost serve</code>" in page
        for path in ("/worklist", "/settings", "/replay", "/outbox"):
            assert "`" not in await shown(ann, path), path
    text = said("`a <b>` from 2026-11-30T17:49:46.362732+00:00, <i>")
    assert text == (
        '<code>a &lt;b&gt;</code> from <time datetime="2026-11-30T17:49:46.362Z" data-show="instant">'
        "2026-11-30 17:49Z</time>, &lt;i&gt;"
    )
    assert said(None) == ""


async def test_a_page_of_what_stands_still_is_looked_at_anew_though_nothing_is_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LATEST", 1)
    async with database.pool.acquire() as connection:
        marks: dict[str, set[str]] = {"worklist": set(), "audit": set()}
        for _ in range(3):
            for about, seen in marks.items():
                seen.add(await live.mark(connection, about))  # type: ignore[arg-type]
            await connection.execute("SELECT pg_sleep(0.6)")
    assert len(marks["worklist"]) > 1 and len(marks["audit"]) == 1
