"""`milepost console`, `tokens` and `access` as an operator runs them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from milepost.devstack.ports import free_port
from milepost.schemas.masking import MASK

from tests.support.console import items, say
from tests.support.console_calls import Call, _no_environment, milepost
from tests.support.process import ROOT

__all__ = ["_no_environment", "milepost"]

SECRET = "thirty-two characters or more of nothing"
REASON = ("--reason", "a test")


@asynccontextmanager
async def served(
    url: str, *words: str, killed: bool = False, env: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Run `milepost console` while the block lasts; gives what it says when it is ready.

    Args:
        killed: End it with SIGKILL.
    """
    path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "milepost.console.main",
            "--json",
            "--database",
            url,
            "--as",
            "ann",
            "console",
        ),
        *words,
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        yield json.loads(line)
        if killed:
            return
        process.terminate()
        async with asyncio.timeout(15):
            _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_first_minute_needs_no_set_up(database_url: str) -> None:
    async with served(database_url, "--port", "0") as ready, httpx.AsyncClient() as browser:
        assert ready["url"].startswith("http://127.0.0.1:")
        assert (await browser.get(f"{ready['url']}/api/v1/me")).status_code == 401
        entered = await browser.get(ready["sign_in"])
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        who = (await browser.get(f"{ready['url']}/api/v1/me")).json()
        assert (who["name"], who["way"], who["grants"][0]["role"]) == ("ann", "LINK", "ADMIN")
        assert "server" not in entered.headers


def code_of(said: tuple[int, str, str]) -> tuple[int, str]:
    """Return a refusal's exit status and code."""
    return said[0], json.loads(said[2])["error"]["code"]


def test_it_does_not_start_open_to_others(milepost: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--json", "console", "--port", str(free_port()), "--host")
    for address in ("0.0.0.0", "::"):
        assert code_of(milepost(*words, address)) == (1, "MP700")
    made(milepost, "tokens", "add", "ann", "--role", "viewer", *REASON)
    for name, value in (("", ""), ("SECRET", SECRET), ("PUBLIC_URL", "http://console.example")):
        monkeypatch.setenv(f"MILEPOST_CONSOLE_{name}", value)
        assert code_of(milepost(*words, "0.0.0.0")) == (1, "MP701"), name
    monkeypatch.setenv("MILEPOST_CONSOLE_PROXY_HEADER", "X-User")
    status, _, errors = milepost("console")
    assert status == 1 and "MP203" in errors and "MILEPOST_CONSOLE_PROXY_FROM" in errors


def test_a_database_that_cannot_be_used_is_said_before_anything_is_served(
    milepost: Call, monkeypatch: pytest.MonkeyPatch, empty_database_url: str
) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", empty_database_url)
    assert code_of(milepost("--json", "console", "--port", "0")) == (3, "MP607")
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    assert code_of(milepost("--json", "console", "--port", "0")) == (4, "MP501")


def test_its_settings_are_shown_where_they_are_set(milepost: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("console_port" in line for line in made(milepost, "settings"))
    monkeypatch.setenv("MILEPOST_CONSOLE_SECRET", SECRET)
    monkeypatch.setenv(
        "MILEPOST_CONSOLE_GRANTS", '[{"group": "ops", "role": "operator", "tenants": ["acme"]}]'
    )
    monkeypatch.setenv("MILEPOST_CONSOLE_PROT", "1")
    lines = made(milepost, "settings")
    shown = {name: line for line in lines for name in line if name.startswith("console_")}
    assert (shown["console_port"]["console_port"], shown["console_port"]["from"]) == ("8700", "default")
    assert (shown["console_secret"]["console_secret"], shown["console_secret"]["from"]) == (MASK, "env")
    assert "acme" in shown["console_grants"]["console_grants"] and SECRET not in str(lines)
    assert [line["unread"] for line in lines if "unread" in line] == ["MILEPOST_CONSOLE_PROT"]


async def test_a_console_that_is_killed_in_an_act_does_not_do_it_twice(database_url: str) -> None:
    """Nobody carries the act out, so its answer is waited for, and the process dies meanwhile."""
    (token,) = await items(database_url, "tokens", "add", "ann", "--role", "operator", *REASON)
    run = "0197c1a0-0000-7000-8000-00000000000c"
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at,"
        " correlation_id) VALUES ($1, 'rig', 'order', 'o-1', 1, 's', 'p', '{}', 'PENDING', milepost.clock(), 'c')",
        run,
    )
    headers = {"Authorization": f"Bearer {token['token']}", "Idempotency-Key": '"k-1"'}
    act = {"act": "cancel", "undo": False, "reason": "the customer called", "wait": 30}
    path, short = f"/api/v1/runs/{run}/acts", {"MILEPOST_LEASE": "1s"}
    asked = "SELECT count(*) FROM milepost.request"
    try:
        async with httpx.AsyncClient(headers=headers, timeout=60) as client:
            async with served(database_url, "--port", "0", killed=True, env=short) as ready:
                posting = asyncio.create_task(client.post(ready["url"] + path, json=act))
                async with asyncio.timeout(30):
                    while not await connection.fetchval(asked):
                        await asyncio.sleep(0.05)
            with pytest.raises(httpx.HTTPError):
                await posting
            async with served(database_url, "--port", "0", env=short) as ready:
                codes: list[str] = []
                async with asyncio.timeout(30):
                    while not codes or codes[-1] == "MP461":
                        answer = await client.post(ready["url"] + path, json=act)
                        codes.append(answer.json()["code"])
                        await asyncio.sleep(0.1)
        assert (answer.status_code, codes[-1]) == (409, "MP462")
        assert await connection.fetchval(asked) == 1
    finally:
        await connection.close()


async def test_with_tokens_an_address_and_a_secret_others_may_come(database_url: str) -> None:
    await items(database_url, "tokens", "add", "ann", "--role", "viewer", *REASON)
    port = str(free_port())
    env = {"MILEPOST_CONSOLE_SECRET": SECRET, "MILEPOST_CONSOLE_PUBLIC_URL": "https://console.example"}
    words = ("--host", "0.0.0.0", "--port", port)
    async with served(database_url, *words, env=env) as ready, httpx.AsyncClient() as client:
        assert ready["url"] == "https://console.example" and ready["sign_in"] is None
        assert (await client.get(f"http://127.0.0.1:{port}/health/ready")).status_code == 200
        assert (await client.get(f"http://127.0.0.1:{port}/sign-in")).status_code == 421
        taken = await say(database_url, "console", *words, env=env)
        assert taken.code == 1 and json.loads(taken.errors)["error"]["code"] == "MP714"


def made(milepost: Call, *words: str) -> list[dict[str, Any]]:
    """Run a command that must succeed; returns what it wrote."""
    status, out, errors = milepost("--json", "--as", "ann", *words)
    assert status == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def test_tokens_and_access_are_shown_once_kept_hashed_and_audited(milepost: Call, database_url: str) -> None:
    words = ("--role", "operator", "--tenant", "acme", "--saga", "order", "--expires", "12h")
    (token,) = made(milepost, "tokens", "add", "robot", *words, *REASON)
    (agent,) = made(milepost, "tokens", "add", "llm", "--role", "agent", *REASON)
    assert token["token"].startswith("mpt_") and (token["kind"], agent["kind"]) == ("PERSON", "AGENT")
    listed = made(milepost, "tokens", "list")
    assert [row["name"] for row in listed] == ["llm", "robot"]
    assert listed[1]["grants"] == [{"role": "OPERATOR", "tenants": ["acme"], "sagas": ["order"]}]
    assert "token" not in listed[0] and token["token"] not in str(listed)
    for wrong in (("--role", "king"), ("--role", "viewer", "--expires", "2y")):
        assert code_of(milepost("--json", "tokens", "add", "x", *wrong, *REASON)) == (2, "MP718")
    made(milepost, "tokens", "revoke", token["id"], *REASON)
    for name in (token["id"], "%", "ro"):
        assert code_of(milepost("--json", "tokens", "revoke", name, *REASON)) == (3, "MP719")
    made(milepost, "access", "add", "ann@x", "--role", "viewer", "--role", "approver", *REASON)
    assert [row["role"] for row in made(milepost, "access", "list")] == ["VIEWER", "APPROVER"]
    assert len(made(milepost, "access", "revoke", "ann@x", *REASON)) == 2
    rows, stored = read(database_url)
    acts = ["token.add"] * 2 + ["token.revoke"] + ["access.add"] * 2 + ["access.revoke"] * 2
    assert [row[1] for row in rows] == acts
    assert {(row[0], row[2]) for row in rows} == {("ann", "a test")}
    assert token["token"] not in stored + str(rows)
    about = [row["about"] for row in made(milepost, "audit", "list")]
    assert about == [
        *("ann@x, approver", "ann@x, viewer", "ann@x, approver", "ann@x, viewer", "robot"),
        *("llm, agent", "robot, operator of acme, for order"),
    ]


def read(url: str) -> tuple[list[Any], str]:
    """Return the audit's entries, and everything that is kept of tokens."""

    async def inner() -> tuple[list[Any], str]:
        connection = await asyncpg.connect(url)
        try:
            rows = await connection.fetch(
                "SELECT actor, act, reason, after::text FROM milepost.audit ORDER BY at, id"
            )
            stored = await connection.fetchval(
                "SELECT string_agg(t::text, ',') FROM milepost.access_token AS t"
            )
        finally:
            await connection.close()
        return rows, stored

    return asyncio.run(inner())
