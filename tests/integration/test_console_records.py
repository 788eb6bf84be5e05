"""`milepost webhooks`, `milepost operations` and what doctor says of them, on a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from milepost import Milepost, Repeat
from milepost.console import main

from tests.support.bank import Receipt, Refund
from tests.support.engine import settings_for
from tests.support.talk import execute

Call = Callable[..., tuple[int, str, str]]

HOOK = """
INSERT INTO milepost.webhook (id, tenant, service, provider, event_id, path, headers, body, fingerprint, state,
                              attempts, code, message, conflicts, received_at, finished_at, wake_at)
VALUES (gen_random_uuid(), '{tenant}', 'shop', 'carrier', '{event}', '/hooks',
        jsonb_build_object('webhook-id', '{event}'), convert_to('{body}', 'UTF8'), '', '{state}', {tries},
        nullif('{code}', ''), nullif('{code}', ''), {conflicts}, now() - interval '6 hours',
        CASE WHEN NOT {live} THEN now() END, CASE WHEN {live} THEN now() - interval '{ago}' END)
"""
OPERATION = """
INSERT INTO milepost.operation (kind, key, id, service, fingerprint, repeat, state, wake_at, doubt_at, expires_at, code,
                                message)
VALUES ('{kind}', '{key}', gen_random_uuid(), 'shop', '', 'never', '{state}',
        CASE WHEN {live} THEN now() + interval '{wake}' END, CASE WHEN '{state}' = 'UNKNOWN' THEN now() END,
        CASE WHEN NOT {live} THEN now() + interval '1 day' END, 'TIMEOUT', 'nothing came')
"""


def hook(
    event: str, state: str, *, tenant: str = "", code: str = "", conflicts: int = 0, ago: str = "0 s"
) -> str:
    live, tries, body = state in {"RECEIVED", "PROCESSING"}, 0 if state == "RECEIVED" else 8, '{"id": "p-1"}'
    return HOOK.format(**locals())


def operation(key: str, state: str, *, wake: str = "0 s", kind: str = "refund") -> str:
    live = state in {"RUNNING", "UNKNOWN"}
    return OPERATION.format(**locals())


@pytest.fixture
def milepost(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("MILEPOST_AS", "ann")
    monkeypatch.delenv("MILEPOST_APP", raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def run(url: str, *statements: str) -> Any:
    return asyncio.run(execute(url, *statements))


def items(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_list_and_one_of_it(milepost: Call, database_url: str) -> None:
    assert "no webhooks yet" in milepost("webhooks", "list")[1]
    run(
        database_url,
        hook("e-1", "PROCESSED", conflicts=2),
        hook("e-2", "FAILED", code="LOOKUPERROR"),
        hook("e-3", "RECEIVED"),
        hook("e-2", "IGNORED", tenant="acme"),
    )
    status, out, _ = milepost("webhooks", "list")
    assert status == 0 and len(out.splitlines()) == 5 + 1, "the failed one has its message below"
    assert "2 with another body" in out and "LOOKUPERROR" in out
    listed = items(milepost("webhooks", "list", "--state", "failed", "--provider", "carrier", "--json")[1])
    assert [(item["webhook"], item["state"], item["tries"]) for item in listed] == [
        ("carrier/e-2", "FAILED", 8)
    ]
    assert milepost("webhooks", "list", "--state", "LOST")[0] == 2
    status, out, _ = milepost("webhooks", "show", "carrier/e-1")
    assert status == 0 and '{"id": "p-1"}' in out and "webhook-id: e-1" in out
    assert milepost("webhooks", "show", "carrier/e-2")[0] == 2, "two tenants have it"
    (shown,) = items(milepost("webhooks", "show", "carrier/e-2", "--tenant", "acme", "--json")[1])
    assert (shown["state"], shown["body"], shown["path"]) == ("IGNORED", '{"id": "p-1"}', "/hooks")
    assert milepost("webhooks", "show", "carrier/e-9")[0] == 3
    assert milepost("webhooks", "show", "e-1")[0] == 2


def test_failed_ones_are_redriven_with_a_reason(milepost: Call, database_url: str) -> None:
    run(database_url, *(hook(f"e-{n}", "FAILED", code="X") for n in range(3)), hook("e-9", "PROCESSED"))
    redrive = ("webhooks", "redrive")
    assert milepost(*redrive, "--reason", "mended")[0] == 2
    assert milepost(*redrive, "carrier/e-0", "--provider", "carrier", "--reason", "mended")[0] == 2
    assert milepost(*redrive, "carrier/e-0", "--reason", " ")[0] == 2
    assert milepost(*redrive, "carrier/e-9", "--reason", "mended")[0] == 3
    assert milepost(*redrive, "carrier/e-0", "--reason", "mended") == (
        0,
        "carrier/e-0: will be worked on again\n1 redriven\n",
        "",
    )
    status, out, _ = milepost(*redrive, "--provider", "carrier", "--reason", "mended", "--yes", "--json")
    assert (status, [item["outcome"] for item in items(out)]) == (0, ["RECEIVED"] * 2)
    assert milepost(*redrive, "--provider", "carrier", "--reason", "again", "--yes")[1] == "0 redriven\n"
    assert (
        run(database_url, "SELECT count(*) FROM milepost.webhook WHERE state = 'RECEIVED' AND attempts = 0")
        == 3
    )
    audited = (
        "SELECT count(*) FROM milepost.audit WHERE outcome = 'DONE'"
        " AND (act, actor, reason) = ('webhook.redrive', 'ann', 'mended')"
    )
    assert run(database_url, audited) == 3


def test_operations_and_what_a_person_says_of_them(milepost: Call, database_url: str, tmp_path: Path) -> None:
    assert "no operations yet" in milepost("operations", "list")[1]
    run(
        database_url,
        operation("o-1", "UNKNOWN", wake="0 s"),
        operation("o-2", "RUNNING", wake="-1 s"),
        operation("o-3", "RUNNING", wake="1 h"),
        operation("o-4", "SUCCEEDED"),
        operation("o-5", "UNKNOWN", wake="0 s", kind="http"),
    )
    listed = items(milepost("operations", "list", "--unknown", "--json")[1])
    assert sorted(item["operation"] for item in listed) == ["http/o-5", "refund/o-1", "refund/o-2"]
    assert "its process is gone" in milepost("operations", "list", "--kind", "refund")[1]
    settle = ("operations", "settle")
    assert milepost(*settle, "refund/o-1", "--reason", "r", "--yes")[0] == 2
    assert milepost(*settle, "refund/o-1", "--absent", "--succeeded", "--reason", "r", "--yes")[0] == 2
    for known in ("refund/o-3", "refund/o-4", "refund/o-9"):
        assert milepost(*settle, known, "--absent", "--reason", "r", "--yes")[0] == 3
    receipt = tmp_path / "receipt.json"
    receipt.write_text('{"resource_id": "r-1", "amount": 5}')
    done = milepost(
        *settle, "refund/o-1", "--succeeded", "--result", str(receipt), "--reason", "bank says", "--yes"
    )
    assert done[:2] == (0, "refund/o-1 SUCCEEDED by ann\n")
    assert milepost(*settle, "refund/o-2", "--absent", "--reason", "not there", "--yes")[0] == 0
    (item,) = items(milepost(*settle, "http/o-5", "--failed", "CARD", "--reason", "no", "--yes", "--json")[1])
    assert item["state"] == "FAILED_FINAL"
    states = "SELECT string_agg(state, ' ' ORDER BY key) FROM milepost.operation"
    assert run(database_url, states) == "SUCCEEDED PENDING RUNNING SUCCEEDED FAILED_FINAL"
    assert run(database_url, "SELECT count(*) FROM milepost.audit WHERE act = 'operation.settle'") == 3
    assert milepost(*settle, "refund/o-1", "--absent", "--reason", "r", "--yes")[0] == 3, "it is known by now"


async def test_what_a_person_said_is_what_callers_get(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Milepost("shop", settings=settings_for(database_url))
    given: dict[str, Any] = {
        "kind": "refund",
        "request": Refund(order="o"),
        "result": Receipt,
        "repeat": Repeat.NEVER,
    }

    async def lost(key: str) -> Receipt:
        raise TimeoutError

    async def pays(key: str) -> Receipt:
        return Receipt(resource_id="r-2", amount=2)

    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("MILEPOST_AS", "ann")
    try:
        for key in ("o-1", "o-2"):
            with pytest.raises(Exception, match="MP462"):
                await service.once(**given, key=key, do=lost)
        words = ["operations", "settle", "refund/o-1", "--absent", "--reason", "looked", "--yes"]
        assert await asyncio.to_thread(main.run, words) == 0
        assert (await service.once(**given, key="o-1", do=pays)).amount == 2
        words = ["operations", "settle", "refund/o-2", "--failed", "NO_MONEY", "--reason", "looked", "--yes"]
        assert await asyncio.to_thread(main.run, words) == 0
        with pytest.raises(Exception, match="NO_MONEY"):
            await service.once(**given, key="o-2", do=pays)
    finally:
        await service.close()


def test_doctor_sees_them(milepost: Call, database_url: str) -> None:
    def found() -> dict[str, tuple[str, str | None]]:
        checks = items(milepost("doctor", "--json")[1])
        wanted = {"webhooks", "operations"}
        return {c["code"] or c["check"]: (c["severity"], c["text"]) for c in checks if c["check"] in wanted}

    assert {name: severity for name, (severity, _) in found().items()} == {
        "webhooks": "ok",
        "operations": "ok",
    }
    run(
        database_url,
        hook("e-1", "FAILED", code="X"),
        hook("e-2", "RECEIVED", ago="5 minutes"),
        operation("o-1", "UNKNOWN", wake="0 s"),
        operation("o-2", "RUNNING", wake="-1 h"),
    )
    seen = found()
    assert {code: severity for code, (severity, _) in seen.items()} == {
        "MP457": "error",
        "MP458": "warning",
        "MP467": "warning",
    }
    assert "carrier/e-1" in str(seen["MP458"]) and "2 operations" in str(seen["MP467"])
