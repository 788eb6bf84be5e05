"""Killed between approval and execution: what was approved happens once, and what has changed since does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apps.ledger_approvals import payout, returns
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.person import Person, person
from tests.support.process import served

REST = "relay,orchestrator,signals,consumers,waker,upkeep"
CALLERS = "worker,compensator"
WHY = ("--role", "finance", "--reason", "because")


@pytest.fixture
def ann(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    return person(database_url, capsys, monkeypatch, tmp_path)


async def approved(stage: Stage, ann: Person, run: str, step: str, *names: str) -> None:
    for name in names:
        said = await ann("approve", run, step, *WHY, by=name)
        assert said.status == 0, said.error


async def test_a_kill_between_approval_and_execution(
    database_url: str, kafka: str, topic_prefix: str, ann: Person
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("same", "ship", "before", "refuse")
        async with served(stage.env(), REST, CALLERS) as (rest, worker):
            run, other = await stage.start(payout, "p"), await stage.start(payout, "q")
            refund = await stage.start(returns, "same")
            await stage.step_is(run, "ok", "WAITING")
            await stage.step_is(other, "ok", "WAITING")
            await stage.step_is(refund, "refund", "MANUAL_REQUIRED")
            await worker.kill()
            await approved(stage, ann, "payout/p", "ok", "ann", "bob")
            await approved(stage, ann, "payout/q", "ok", "ann", "bob")
            await approved(stage, ann, "returns/same", "refund", "ann")
            await rest.kill()
        assert (await stage.step(run, "pay_out"))["state"] == "PENDING"
        assert (await stage.step(refund, "refund"))["state"] == "COMPENSATION_PENDING"
        # While everything is down, one of the two is moved to another version, as a migration does.
        change = (
            """UPDATE milepost.run SET input = '{"name": "other"}', version = version + 1 WHERE id = $1"""
        )
        await stage.pool.execute(change, other)
        async with served(stage.env()):
            assert await stage.resting([run, other, refund], within=60) == {
                "SUCCEEDED": 1,
                "COMPENSATED": 1,
                "MANUAL_REQUIRED": 1,
            }
            assert await stage.effects(run) == ["prepare", "pay out"], await stage.story(run)
            assert await stage.calls(refund, "refund") == 1, await stage.story(refund)
            assert await stage.effects(other) == ["prepare"], await stage.story(other)
            assert (await stage.step(other, "pay_out"))["code"] == "APPROVAL_VOID"
            await approved(stage, ann, "payout/q", "pay_out", "ann", "bob")
            assert await stage.resting([other], within=60) == {"SUCCEEDED": 1}
        assert await stage.effects(other) == ["prepare", "pay out"]
