"""Approvals at the command line, carried out by a running service; what counts is the other side's ledger."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from tests.support import servers
from tests.support.apps.ledger_approvals import payout, returns, strict
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.person import Person, Said, person
from tests.support.process import served

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHY = ("--reason", "because")
FINANCE = ("--role", "finance")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    postgres_server: servers.DatabaseServer, database_template: str, kafka_server: servers.MessageServer
) -> AsyncIterator[Stage]:
    """The ledger's service with one process of all roles, for every test here."""
    prefix = f"t{secrets.token_hex(5)}"
    with servers.fresh_database(postgres_server, database_template) as url:
        async with staged(url, kafka_server.bootstrap, prefix) as stage:
            async with served(stage.env()):
                yield stage


@pytest.fixture
def ann(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    monkeypatch.delenv("MILEPOST_ROLES", raising=False)
    return person(stage.url, capsys, monkeypatch, tmp_path)


async def ends(stage: Stage, run: UUID, state: str, *effects: str) -> None:
    """Wait until a run has ended, and compare the ledger."""
    await stage.resting([run], within=60)
    assert await stage.state(run) == state, await stage.story(run)
    assert await stage.effects(run) == list(effects), await stage.story(run)


def no(said: Said, words: str) -> None:
    assert said.status == 3 and words in said.error and '"MP615"' in said.error, said


async def waits_for(ann: Person, run: str, step: str, *options: str) -> list[dict[str, Any]]:
    lines = (await ann("worklist", "--kind", "approval", *options)).lines
    return [line for line in lines if (line["run"], line["step"]) == (run, step)]


async def test_a_payout_is_approved_by_two_of_a_role_and_happens_once(
    stage: Stage, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stage.start(payout, "p-1")
    await stage.step_is(run, "ok", "WAITING")
    assert await stage.state(run) == "WAITING"
    (line,) = await waits_for(ann, "payout/p-1", "ok")
    assert (line["kind"], line["risk"], line["needed"], line["left"]) == ("approval", "HIGH", 2, 2)
    assert (line["roles"], line["params"]["to"], line["possible"]) == (
        ["finance"],
        "p-1",
        ["approve", "reject", "cancel"],
    )
    no(await ann("approve", "payout/p-1", "ok", *WHY), "needs one of the roles finance")
    assert await waits_for(ann, "payout/p-1", "ok", "--mine", "--role", "clerk") == []
    assert len(await waits_for(ann, "payout/p-1", "ok", "--mine", *FINANCE)) == 1
    first = await ann("approve", "payout/p-1", "ok", *FINANCE, *WHY)
    assert (first.status, first.lines[0]["approved"], first.lines[0]["needed"]) == (0, 1, 2)
    assert first.lines[0]["answer"] == "approved by ann; 1 more needed"
    assert await waits_for(ann, "payout/p-1", "ok", "--mine", *FINANCE) == []
    no(await ann("approve", "payout/p-1", "ok", *FINANCE, *WHY, by="ANN"), "counts once")
    no(await ann("runs", "skip", "payout/p-1", "ok", *WHY), "approve it or reject it")
    assert await stage.effects(run) == ["prepare"]
    monkeypatch.setenv("MILEPOST_ROLES", "clerk, finance")
    second = await ann("approve", "payout/p-1", "ok", *WHY, by="bob", json_lines=False)
    assert second.lines[0]["text"].startswith("payout/p-1 ok: approved by bob; ok SUCCEEDED")
    await ends(stage, run, "SUCCEEDED", "prepare", "pay out")
    rows = await stage.pool.fetch("SELECT * FROM milepost.approval WHERE run_id = $1 ORDER BY id", run)
    assert [(row["by"], row["decision"], row["generation"]) for row in rows] == [
        ("ann", "APPROVED", 1),
        ("bob", "APPROVED", 1),
    ]
    assert {len(row["hash"]) for row in rows} == {64}
    assert rows[1]["roles"] == ["clerk", "finance"]
    acts = "SELECT actor FROM milepost.audit WHERE run_id = $1 AND act = 'run.approve' AND outcome = 'DONE' ORDER BY id"
    assert [row["actor"] for row in await stage.pool.fetch(acts, run)] == ["ann", "bob"]
    no(await ann("approve", "payout/p-1", "ok", *WHY), "the run has ended as SUCCEEDED")


async def test_a_rejected_payout_is_undone_and_a_changed_one_is_asked_for_anew(
    stage: Stage, ann: Person
) -> None:
    rejected, moved = [await stage.start(payout, name) for name in ("p-2", "p-3")]
    for run in (rejected, moved):
        await stage.step_is(run, "ok", "WAITING")
    said = await ann("reject", "payout/p-2", "ok", *FINANCE, *WHY, json_lines=False)
    assert said.lines[0]["text"].startswith("payout/p-2 ok: rejected by ann: ok FAILED"), said
    await ends(stage, rejected, "COMPENSATED", "prepare", "unprepare")

    assert (await ann("approve", "payout/p-3", "ok", *FINANCE, *WHY)).status == 0
    # What a migration of the run to another version does to its input.
    change = """UPDATE milepost.run SET input = '{"name": "p-3b"}', version = version + 1 WHERE id = $1"""
    await stage.pool.execute(change, moved)
    no(
        await ann("approve", "payout/p-3", "ok", *FINANCE, *WHY, by="bob"),
        "has changed since it was asked for",
    )
    (line,) = await waits_for(ann, "payout/p-3", "ok")
    assert (line["generation"], line["left"], line["params"]["to"]) == (2, 2, "p-3b")
    for name in ("ann", "bob"):
        assert (await ann("approve", "payout/p-3", "ok", *FINANCE, *WHY, by=name)).status == 0
    await ends(stage, moved, "SUCCEEDED", "prepare", "pay out")
    assert "approval.voided" in await stage.history(moved)


async def test_a_refund_waits_for_a_person_while_the_stock_is_free_again(stage: Stage, ann: Person) -> None:
    await stage.fault("r-1", "ship", "before", "refuse")
    run = await stage.start(returns, "r-1")
    await stage.step_is(run, "refund", "MANUAL_REQUIRED")
    for name in ("release", "unlabel"):
        await stage.step_is(run, name, "COMPENSATED")
    assert await stage.state(run) == "MANUAL_REQUIRED" and await stage.calls(run, "refund") == 0
    (line,) = await waits_for(ann, "returns/r-1", "refund", "--mine")
    assert (line["risk"], line["undo_of"], line["possible"][:2]) == ("HIGH", "charge", ["approve", "reject"])
    no(await ann("runs", "retry", "returns/r-1", "refund", *WHY), "approve it, or reject it")
    said = await ann("approve", "returns/r-1", "refund", *WHY)
    assert said.lines[0]["answer"] == "approved by ann; refund COMPENSATION_PENDING, run COMPENSATING"
    await stage.resting([run], within=60)
    effects = await stage.effects(run)
    assert await stage.state(run) == "COMPENSATED" and effects[-1] == "refund", await stage.story(run)
    assert sorted(effects[3:5]) == ["release", "unlabel"] and effects[2] == "charge"


async def test_a_critical_refund_needs_two_others_and_a_rejected_one_is_not_lost(
    stage: Stage, ann: Person
) -> None:
    await stage.fault("s-1", "ship", "before", "hold")
    run = await stage.start(strict, "s-1")
    await stage.reached("s-1", "ship", "before")
    asked = await ann("runs", "cancel", "strict/s-1", "--undo", *WHY)
    assert asked.status == 0
    await stage.release("s-1", "ship", "before")
    await stage.step_is(run, "refund", "MANUAL_REQUIRED")
    assert await stage.effects(run) == ["reserve", "label", "charge", "ship"] or await stage.effects(run) == [
        *("label", "reserve", "charge", "ship")
    ]
    no(await ann("approve", "strict/s-1", "refund", *WHY), "ann asked for it: two others have to approve")
    said = await ann("approve", "strict/s-1", "refund", *WHY, by="bob")
    assert said.lines[0]["answer"] == "approved by bob; 1 more needed"
    assert (await ann("reject", "strict/s-1", "refund", *WHY, by="cid")).status == 0
    assert await stage.state(run) == "COMPENSATION_FAILED"
    (line,) = [one for one in (await ann("worklist", "--kind", "undo")).lines if one["run"] == "strict/s-1"]
    assert (line["code"], line["possible"]) == ("APPROVAL_REJECTED", ["retry", "skip", "mark-succeeded"])
    assert (await ann("runs", "retry", "strict/s-1", "refund", *WHY, by="cid")).status == 0
    (line,) = await waits_for(ann, "strict/s-1", "refund")
    assert (line["generation"], line["left"], line["approved_by"]) == (2, 2, [])
    no(await ann("approve", "strict/s-1", "refund", *WHY, by="cid"), "cid asked for it")
    for name in ("bob", "dora"):
        assert (await ann("approve", "strict/s-1", "refund", *WHY, by=name)).status == 0
    await stage.resting([run], within=60)
    assert (await stage.effects(run))[4:5] == ["refund"], await stage.story(run)
    assert await stage.state(run) == "COMPENSATED" and await stage.calls(run, "refund") == 1


async def test_a_role_must_be_a_name(stage: Stage, ann: Person) -> None:
    said = await ann("approve", "payout/p-1", "ok", "--role", " ", *WHY)
    assert said.status == 2 and "MP644" in said.error
