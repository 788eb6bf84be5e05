"""Rounds of a loop as they are told of: in the history, in what was reconciled, in the traces of waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost import (
    Absent,
    Context,
    Found,
    Milepost,
    Probe,
    QualityFailed,
    Repeat,
    RunState,
    Saga,
    loop,
)
from milepost.console.model import HistoryLine
from milepost.console.runs import _history_entry
from milepost.consumers import orchestrator
from milepost.consumers.changes import Change
from milepost.consumers.rows import Loaded
from milepost.sagas.model import Decision, Run, Step
from milepost.schemas.states import StepKind, StepState
from milepost.testing import open_kit
from pydantic import BaseModel

from tests.support.console import items
from tests.support.kitshop import NOWHERE

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Key(BaseModel):
    id: str


class Page(BaseModel):
    n: int


def paper(calls: list[str]) -> Saga[Key]:
    """Write and pay, in rounds: the first is too dry, of the second the reply to the payment is lost."""
    saga = Saga("paper", version=1, input=Key, key=lambda given: given.id)

    @saga.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Key]) -> Page:
        before = ctx.fell_short
        calls.append(f"write {ctx.round} {before.code + before.message if before else None}")
        if before is None:
            raise QualityFailed("DRY", "two words")
        return Page(n=ctx.round)

    @saga.step(repeat=Repeat.ASK_FIRST)
    async def pay(ctx: Context[Key]) -> Page:
        calls.append("pay")
        raise RuntimeError("no reply")

    @pay.probe(settle=timedelta(0))
    async def find(ctx: Context[Key]) -> Probe[Page]:
        return Found(Page(n=7)) if "pay" in calls else Absent()

    saga.flow(loop(write, pay, until=lambda v: v.result(pay).n == 7, at_most=3, name="rounds"))
    return saga


async def test_every_row_says_of_which_round_it_is() -> None:
    calls: list[str] = []
    saga = paper(calls)
    service = Milepost("bare", sagas=[saga], settings=NOWHERE)
    async with open_kit(service) as kit:
        run = await kit.start(saga, Key(id="k"))
        await kit.until(run, RunState.SUCCEEDED)
        assert calls == ["write 1 None", "write 2 DRYtwo words", "pay"]
        pool, url = kit._opened.database.pool, kit._opened.settings.dsn
        rows = await pool.fetch("SELECT event, step, iteration FROM milepost.history ORDER BY n")
        (shown,) = await items(url, "runs", "show", str(run), "--history")
        settled = await pool.fetch("SELECT step, iteration FROM milepost.reconciliation")
        audit = await pool.fetchval(
            "SELECT evidence ->> 'iteration' FROM milepost.audit WHERE act = 'reconcile'"
        )
    told = [(row["event"], row["step"], row["iteration"]) for row in rows if row["step"]]
    assert ("step.failed", "write", "1") in told and ("step.completed", "write", "2") in told
    assert ("step.completed", "rounds", "2") in told
    assert {(step, iteration) for _, step, iteration in told if step == "pay"} == {("pay", "2")}
    assert [row["iteration"] for row in rows if not row["step"]] == ["", ""]
    assert [tuple(row) for row in settled] == [("pay", "2")] and audit == "2"
    assert [(e["event"], e["step"], e["iteration"]) for e in shown["history"] if e["step"]] == told


def test_the_timeline_writes_the_round() -> None:
    line = HistoryLine(n=1, at=NOW, event="step.started", step="write", iteration="2.1", attempt=1, data={})
    assert _history_entry(line, NOW, None).cells[3].plain == "write#2.1"


def test_the_wait_of_a_round_that_begins_is_not_told_as_that_of_the_round_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second round's wait is in front of a person at once; only the first one's has ended."""
    spans: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        orchestrator,
        "past_span",
        lambda name, **more: spans.append((more["attributes"]["milepost.state"], more["links"])),
    )
    first = Step(name="came", kind=StepKind.WAIT, state=StepState.WAITING, since=NOW, iteration="1")
    run = Run(
        id=UUID(int=1),
        tenant="",
        saga="waits",
        key="k",
        definition=1,
        input=None,
        state=RunState.WAITING,
        correlation_id="",
        steps=(first,),
    )
    done = replace(first, state=StepState.SUCCEEDED)
    held = replace(first, iteration="2", state=StepState.MANUAL_REQUIRED)
    decision = Decision(answer="changed", run=replace(run, steps=(done, held)), changed=(done, held))
    loaded = Loaded(run=run, service="s", now=NOW, links={("came", "1"): "link"})
    orchestrator.trace_wait(Change(loaded, decision))
    assert spans == [("SUCCEEDED", ("link",))]
