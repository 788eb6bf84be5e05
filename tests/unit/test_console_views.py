"""What pages show, made without a database: lanes, drawings, choices, files, and what an address says."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost.console.model import HistoryLine, RunDetail, StepLine
from milepost.console.views.choices import of_run, of_step
from milepost.console.views.drawn import from_outline, nodes_of
from milepost.console.views.lanes import lanes
from milepost.console.views.runs import Search, _bounds, _query
from milepost.console.views.runs import Sql as RunsSql
from milepost.console.views.work import Question
from milepost.console.web.listing import as_csv, query_of
from milepost.examples.order.saga import order as reference
from milepost.recovery.permissions import Actor, ActorKind, Grant, Role
from milepost.sagas.drawing import boxes_of, edges_of
from milepost.sagas.drawing_plan import draw
from milepost.sagas.drawing_svg import flow_svg
from milepost.schemas.ids import SystemIds
from milepost.schemas.states import FINAL_RUN_STATES, Risk, RunState, StepKind, StepState
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from tests.support.apps.console_sagas import order, payout

NOW = datetime(2026, 12, 2, 18, tzinfo=UTC)
ANN = Actor("ann", ActorKind.PERSON, (Grant(Role.ADMIN),))
VIC = Actor("vic", ActorKind.PERSON, (Grant(Role.VIEWER),))


def a_step(state: StepState = StepState.MANUAL_REQUIRED, **more: Any) -> StepLine:
    base: dict[str, Any] = {
        "name": "pay",
        "iteration": "",
        "kind": StepKind.STEP,
        "state": state,
        "undo_of": None,
        "queue": "default",
        "attempt": 1,
        "probes": 0,
        "probed": False,
        "doubt": False,
        "code": "NO",
        "message": "no",
        "worker": None,
        "wake_at": NOW,
        "since": NOW,
        "started_at": NOW,
        "finished_at": None,
    }
    return StepLine(**{**base, **more})


def a_run(state: RunState, *steps: StepLine, cause: str | None = None) -> RunDetail:
    return RunDetail(
        id=UUID(int=1),
        tenant="",
        service="shop",
        saga="order",
        key="o-1",
        definition=1,
        state=state,
        code=None,
        cause=cause,
        correlation_id="c",
        traceparent=None,
        created_at=NOW,
        updated_at=NOW,
        finished_at=NOW if state in FINAL_RUN_STATES else None,
        wake_at=NOW,
        now=NOW,
        steps=steps,
    )


def told(event: str, at: float, **data: Any) -> HistoryLine:
    return HistoryLine(
        n=0, at=NOW + timedelta(seconds=at), event=event, step="pay", iteration="", attempt=1, data=data
    )


def test_a_lane_has_tries_pauses_doubt_and_standing_in_front_of_a_person() -> None:
    history = [
        told("step.started", 0),
        told("step.failed", 2),
        told("step.retry_scheduled", 2),
        told("step.started", 5),
        told("step.unknown", 7),
        told("step.manual_required", 9),
    ]
    (lane,) = lanes([a_step()], history, NOW + timedelta(seconds=20))
    seconds = [
        (one.tone, (one.begins - NOW).total_seconds(), (one.ends - NOW).total_seconds())
        for one in lane.stretches
    ]
    assert seconds == [
        ("failed", 0, 2),
        ("over", 2, 5),
        ("live", 5, 7),
        ("doubt", 7, 9),
        ("person", 9, 20),
    ]
    assert lanes([a_step(StepState.SUCCEEDED, finished_at=NOW)], [], NOW) == []


@pytest.mark.parametrize("saga", [order, payout, reference])
def test_what_is_drawn_from_what_was_written_down_is_what_is_drawn_from_the_definition(saga: Any) -> None:
    definition = saga.definition
    drawn, whole = from_outline(definition.name, definition.version, definition.outline), draw(definition)
    assert [(box.name, box.kind) for box in boxes_of(drawn.flow)] == [
        (box.name, box.kind) for box in boxes_of(whole.flow)
    ]
    assert edges_of(drawn) == edges_of(whole) and drawn.kept == whole.kept
    assert "<style" not in flow_svg(drawn, styled=False) and "<style" in flow_svg(drawn)
    assert nodes_of(None) == []


def test_what_may_be_decided_follows_the_state_and_says_why_not() -> None:
    held = a_step()
    run = a_run(RunState.MANUAL_REQUIRED, held)
    choices = {one.name: one for one in of_step(ANN, run, held, question=None, severity=Risk.MEDIUM)}
    assert {name: one.why_not for name, one in choices.items()} == dict.fromkeys(
        ["retry", "skip", "mark_succeeded"], ""
    )
    of = {one.name: one for one in of_run(ANN, run, severity=Risk.MEDIUM, parked=False, to_review=False)}
    assert of["resume"].why_not == "Decide about pay instead: the run goes on with it."
    assert (of["compensate"].why_not, of["cancel"].why_not, of["cancel"].asks) == ("", "", ["undo"])
    critical = of_step(ANN, run, held, question=None, severity=Risk.CRITICAL)
    assert all("second person" in one.second for one in critical)
    viewer = of_step(VIC, run, held, question=None, severity=Risk.MEDIUM)
    assert {one.why_not for one in viewer} == {"Not allowed: your roles here are: viewer."}
    assert of_step(ANN, run, a_step(StepState.RUNNING), question=None, severity=Risk.LOW) == []


def test_who_lacks_the_role_that_an_approval_asks_for_is_told_how_to_have_it() -> None:
    ask = a_step(StepState.WAITING, kind=StepKind.APPROVAL)
    run = a_run(RunState.WAITING, ask)
    question = Question(risk=Risk.HIGH, needed=1, left=1, roles=["finance"], given=[], expires=None)

    def whys(*groups: str) -> dict[str, str]:
        made = of_step(ANN, run, ask, question=question, severity=Risk.LOW, groups=groups)
        return {one.name: one.why_not for one in made}

    assert "`milepost console --role ROLE`" in whys()["approve"] and "finance" in whys()["reject"]
    assert (whys("finance")["approve"], whys("finance")["reject"]) == ("", "")


def test_what_follows_an_act_on_an_undo_is_not_said_the_wrong_way_round() -> None:
    undo = a_step(StepState.COMPENSATION_FAILED, kind=StepKind.UNDO, undo_of="pay")
    run = a_run(RunState.COMPENSATION_FAILED, undo)
    says = {one.name: one.says for one in of_step(ANN, run, undo, question=None, severity=Risk.LOW)}
    assert "what the step did stays" in says["skip"]
    assert "what the step did has been taken back" in says["mark_succeeded"]
    rejected = a_step(
        StepState.COMPENSATION_FAILED, kind=StepKind.UNDO, undo_of="pay", code="APPROVAL_REJECTED"
    )
    again = {one.name: one.says for one in of_step(ANN, run, rejected, question=None, severity=Risk.LOW)}
    assert "asked for anew" in again["retry"]
    wait = a_step(kind=StepKind.WAIT)
    waits = {one.name: one.says for one in of_step(ANN, run, wait, question=None, severity=Risk.LOW)}
    assert "waited for anew" in waits["retry"]


@pytest.mark.parametrize("state", list(RunState))
def test_a_run_that_has_ended_is_left_alone(state: RunState) -> None:
    made = of_run(ANN, a_run(state), severity=Risk.LOW, parked=False, to_review=False)
    if state in FINAL_RUN_STATES:
        assert {one.why_not for one in made} == {"It has ended."}
    else:
        assert any(one.why_not for one in made) or state is RunState.MANUAL_REQUIRED


class Row(BaseModel):
    name: str
    at: datetime | None
    took: timedelta | None


def test_no_cell_of_a_file_is_taken_for_a_formula() -> None:
    rows = [
        Row(name=name, at=NOW, took=timedelta(seconds=1.5))
        for name in ("=1+1", "@x", "a,b", 'say "no"', "-1")
    ]
    text = bytes(as_csv("x", ("name", "at", "took"), rows).body).decode()
    read = list(csv.reader(io.StringIO(text)))
    assert read[0] == ["name", "at", "took"]
    assert [row[0] for row in read[1:]] == ["'=1+1", "'@x", "a,b", 'say "no"', "'-1"]
    assert read[1][1:] == ["2026-12-02T18:00:00.000Z", "1.5"]


def test_an_address_is_the_same_whatever_the_order_of_its_fields() -> None:
    first, second = QueryParams("state=live&q=&saga=order&cursor=1"), QueryParams("saga=order&state=live")
    assert query_of(first) == query_of(second) == "saga=order&state=live"
    assert query_of(second, cursor="2") == "cursor=2&saga=order&state=live"


def test_a_search_goes_along_the_index_that_knows_most() -> None:
    rare = (RunState.FAILED,)
    cases: list[tuple[Search, list[str] | None, list[str] | None, str]] = [
        (Search(q="o-1"), None, None, RunsSql.hits),
        (Search(states=rare), None, ["order"], RunsSql.by_state),
        (Search(states=(RunState.SUCCEEDED,)), None, ["order"], RunsSql.by_saga),
        (Search(), ["acme"], ["order"], RunsSql.by_tenant),
        (Search(), [""], None, RunsSql.youngest),
        (Search(), None, None, RunsSql.youngest),
    ]
    for wanted, tenants, sagas, query in cases:
        assert _query(wanted, tenants, sagas)[0] == query
    made = SystemIds().new()
    instant = datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    low, high = _bounds(Search(begun=instant, before=instant))
    assert low < made < high and re.fullmatch(r"[0-9a-f-]{36}", str(low))
