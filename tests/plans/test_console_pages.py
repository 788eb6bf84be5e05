"""What the console's pages cost when a week has left many runs: 100,000 of them, a million with MILEPOST_CHAOS=long.

Overview, worklist and search have to answer in less than 300 ms, and none of them may read the runs or steps from end
to end, so that ten times as many runs change nothing. `make bench-console` shows the times at a million.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import asyncpg
import pytest
from milepost.console.views.overview import overview
from milepost.console.views.run import run_view
from milepost.console.views.runs import Search, search
from milepost.console.views.worklist import worklist
from milepost.consumers.tallying import Tallying
from milepost.recovery.permissions import EVERYTHING, Actor, ActorKind, Grant, Role, Scope
from milepost.schemas.states import RunState
from milepost.streams.database import Database

from tests.support import servers
from tests.support.consoleweb import console
from tests.support.engine import settings_for
from tests.support.many_runs import WORKFLOWS, fill

RUNS = 1_000_000 if os.environ.get("MILEPOST_CHAOS") == "long" else 100_000
#: What a page may take, in seconds.
WITHIN = 0.3
ANN = Actor("ann", ActorKind.PERSON, (Grant(Role.ADMIN),))
ACME = Scope(tenants=frozenset({"acme"}))
REPORTS = Scope(sagas=frozenset({"report"}))
ONE = "SELECT * FROM milepost.run WHERE state = 'FAILED' ORDER BY id OFFSET 100 LIMIT 1"
SCANS = (
    "SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables"
    " WHERE schemaname = 'milepost' AND relname = ANY ('{run,step}')"
)


@pytest.fixture(scope="module")
def many(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """A database with so many runs, counted by the role upkeep."""
    with servers.fresh_database(postgres_server, database_template) as url:
        asyncio.run(_filled(url))
        yield url


async def _filled(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await fill(connection, RUNS)
    finally:
        await connection.close()
    database = Database(settings_for(url), max_size=2)
    await database.open()
    try:
        # Two at once count once, which the sums hold.
        assert any(await asyncio.gather(*(Tallying(database).turn() for _ in range(2))))
    finally:
        await database.close()


def pages(one: Any) -> dict[str, Callable[[Any], Awaitable[Any]]]:
    """Return what is looked at, by name; `one` is a run of it."""
    now = datetime.now(UTC)

    def looked(scope: Scope = EVERYTHING, **wanted: Any) -> Callable[[Any], Awaitable[Any]]:
        return lambda connection: search(connection, scope, Search(**wanted))

    middle = now - timedelta(days=3, hours=12)
    return {
        "overview": lambda c: overview(c, EVERYTHING),
        "overview of a tenant": lambda c: overview(c, ACME),
        "worklist": lambda c: worklist(c, EVERYTHING),
        "worklist of a workflow": lambda c: worklist(c, REPORTS, group="steps"),
        "run": lambda c: run_view(c, EVERYTHING, one["id"], actor=ANN),
        "all runs": looked(),
        "second page": looked(cursor=one["id"]),
        "by id": looked(q=str(one["id"])[:13]),
        "by key": looked(q=one["key"]),
        "by name": looked(q=f"{one['saga']}/{one['key']}"),
        "by correlation": looked(q=one["correlation_id"]),
        "nothing": looked(q="no such run"),
        "in front of a person": looked(states=(RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED)),
        "a state that no run has": looked(states=(RunState.EXPIRED,)),
        "succeeded of a workflow": looked(saga="order", states=(RunState.SUCCEEDED,)),
        "failed of a workflow": looked(saga="order", states=(RunState.FAILED,)),
        "a workflow without runs": looked(saga="nobody"),
        "of a tenant": looked(tenant="acme"),
        "what a tenant's reader sees": looked(ACME),
        "a tenant without runs": looked(tenant="nobody"),
        "half an hour in the middle": looked(begun=middle, before=middle + timedelta(minutes=30)),
        "before the middle": looked(before=middle),
        "before all": looked(before=now - timedelta(days=30)),
    }


async def test_pages_answer_in_less_than_a_third_of_a_second(many: str) -> None:
    connection = await asyncpg.connect(many)
    try:
        one = await connection.fetchrow(ONE)
        await connection.close()
        found: dict[str, tuple[float, int]] = {}
        for name, look in pages(one).items():
            found[name] = await _cost(many, look)
    finally:
        await connection.close()
    print()
    for name, (seconds, scans) in found.items():
        print(f"{1000 * seconds:7.1f} ms  {scans} scans  {name}")
    slow = {name: cost for name, cost in found.items() if cost[0] > WITHIN}
    assert (slow, {name: scans for name, (_, scans) in found.items() if scans}) == ({}, {})


async def _cost(url: str, look: Callable[[Any], Awaitable[Any]]) -> tuple[float, int]:
    """Return the median of five looks in seconds, and how often runs or steps were read from end to end."""
    before = await _scans(url)
    connection = await asyncpg.connect(url)
    try:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            await look(connection)
            times.append(time.perf_counter() - began)
    finally:
        await connection.close()
    return median(times), await _scans(url) - before


async def _scans(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(await connection.fetchval(SCANS))
    finally:
        await connection.close()


async def test_pages_as_a_browser_gets_them_do_too(many: str) -> None:
    """With who asks, its rights, and the page itself, in the console's own process."""
    found: dict[str, float] = {}
    async with console(many) as web:
        ann = await web.person("ann", Role.ADMIN)
        one = await web.pool.fetchrow(ONE)
        run = f"/runs/{one['id']}"
        for path in ("/", "/worklist", "/runs", f"/runs?q={one['key']}", "/runs?state=MANUAL_REQUIRED", run):
            times = []
            for _ in range(5):
                began = time.perf_counter()
                answer = await ann.get(path, headers={"Accept": "text/html"})
                times.append(time.perf_counter() - began)
                assert answer.status_code == 200, answer.text
            found[path] = median(times)
    print()
    for path, seconds in found.items():
        print(f"{1000 * seconds:7.1f} ms  {path}")
    assert {path: s for path, s in found.items() if s > WITHIN} == {}


async def test_what_is_counted_is_what_happened(many: str) -> None:
    """The tally, and what came since, are together what the runs say."""
    connection = await asyncpg.connect(many)
    try:
        seen = await overview(connection, EVERYTHING)
        assert seen.whole and not seen.capped
        ended = await connection.fetch(
            "SELECT saga, state, count(*) AS amount FROM milepost.run"
            " WHERE finished_at >= $1::timestamptz - interval '7 days' GROUP BY saga, state",
            seen.now,
        )
        wanted = sum(row["amount"] for row in ended)
        # A bucket that began before the week did is left out: five minutes of seven days.
        assert 0.999 * wanted <= seen.lately["week"].runs <= wanted
        live = await connection.fetchval("SELECT count(*) FROM milepost.run WHERE wake_at IS NOT NULL")
        assert seen.amount() == live and {one.saga for one in seen.live} == set(WORKFLOWS)
        assert seen.lately["week"].acts["retry"] > 0 and seen.lately["week"].mttr is not None
        acme = await overview(connection, ACME)
        assert 0 < acme.lately["week"].runs < seen.lately["week"].runs and acme.beside is None
        page = await search(connection, EVERYTHING, Search(tenant="acme", limit=7))
        again = await search(connection, EVERYTHING, Search(tenant="acme", limit=7, cursor=page.next))
        ids = [run.id for run in (*page.runs, *again.runs)]
        assert ids == sorted(ids, reverse=True) and len(set(ids)) == 14
        hidden = await search(connection, REPORTS, Search(saga="order"))
        assert hidden.runs == [] and hidden.next is None
    finally:
        await connection.close()
