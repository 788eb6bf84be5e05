"""The command and the page with the application: what it inspects and its policies, as the role has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from milepost.recovery.permissions import Grant, Role

from tests.support.apps.inspected_service import service
from tests.support.console import say, spoken
from tests.support.consoleweb import console
from tests.support.drifting import kept, parcel, world
from tests.support.engine import rig
from tests.support.process import served
from tests.support.waiting import until

APP = "tests.support.apps.inspected_service:service"
HTML = {"Accept": "text/html"}


def decisions(lines: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """What was decided about what."""
    return [(line["drift"], line["subject"], line["action"]) for line in lines]


async def test_a_dry_run_says_what_the_role_then_does(database_url: str, kafka: str, tmp_path: Path) -> None:
    state = tmp_path / "servers.json"
    state.write_text(json.dumps({"production": "bad", "staging": "good"}))
    env = {"INSPECTED": str(state), "MILEPOST_KAFKA": kafka, "MILEPOST_RECONCILE_EVERY": "PT0.5S"}
    saga = parcel()
    async with rig(database_url, saga) as it, world(it, saga) as at:
        await at.begin("o-1", at.dead)
        without = await say(database_url, "reconcile", "--dry-run", env=env)
        assert [line.get("action", line.get("why")) for line in without.lines] == ["RETRY", "no application"]
        dry = await say(database_url, "reconcile", "--dry-run", "--app", APP, env=env)
        assert dry.code == 1, dry
        assert decisions(dry.lines) == [("INSPECTED", "rig/deploys//production", "ROLLBACK")]
        assert await kept(it.database.pool) == []
        own = {**env, "MILEPOST_APP": APP, "MILEPOST_DATABASE_URL": database_url}
        async with served(own, "reconciler"):

            async def decided() -> bool:
                return bool(await kept(it.database.pool))

            await until(decided, within=20, what="the role's decision")
        rows = await kept(it.database.pool)
        assert [(row["drift"], row["subject"], row["decision"]) for row in rows] == decisions(dry.lines)
        state.write_text(json.dumps({"production": "bad", "staging": "worse"}))
        done = await say(database_url, "reconcile", "--app", APP, env=env)
        assert decisions(done.lines) == [("INSPECTED", "rig/deploys//staging", "ROLLBACK")]
        assert await it.value("SELECT count(*) FROM milepost.run WHERE saga = 'roll-back'") == 2
        state.unlink()
        failed = await say(database_url, "reconcile", "--app", APP, env=env)
        assert (failed.code, failed.lines) == (1, [{"not_inspected": ["deploys"], "why": "failed"}])
        assert "MP652" in failed.errors


async def test_without_an_application_the_command_says_what_nobody_looked_at(database_url: str) -> None:
    assert "desired against actual was not looked at" in await spoken(database_url, "reconcile")


async def test_the_page_looks_too_where_its_console_has_the_application(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "servers.json"
    state.write_text(json.dumps({"production": "bad"}))
    monkeypatch.setenv("INSPECTED", str(state))
    saga, wish = parcel(), {"reason": "look"}
    async with rig(database_url, saga) as it, world(it, saga) as at:
        async with console(database_url) as web:
            ann = await web.person("ann", Role.OPERATOR)
            assert "told of no application" in (await ann.get("/recovery", headers=HTML)).text
            assert "told of no application" in (await ann.get("/runbooks/inspected", headers=HTML)).text
            assert "told of no application" in (await ann.post("/recovery", data=wish, headers=HTML)).text
        await at.begin("o-1", at.dead)
        async with console(database_url, service=service) as web:
            ann = await web.person("ben", Role.OPERATOR)
            other = await web.person("eve", Grant(Role.OPERATOR, sagas=frozenset({"parcel"})))
            page = (await ann.get("/recovery", headers=HTML)).text
            assert "looks at what the application inspects, too: deploys" in page and "parcel/o-1" not in page
            assert "1 inspection: deploys" in (await ann.get("/runbooks/inspected", headers=HTML)).text
            assert "Nothing to do" in (await other.post("/recovery", data=wish, headers=HTML)).text
            done = (await ann.post("/recovery", data=wish, headers=HTML)).text
            assert "deploys production" in done and "Repaired" in done and "parcel/o-1" not in done
            (row,) = await kept(it.database.pool)
            assert (row["decision"], row["actor"]) == ("ROLLBACK", "ben")
            state.unlink()
            failed = (await ann.post("/recovery", data=wish, headers=HTML)).text
            assert "Could not be looked at: deploys" in failed
