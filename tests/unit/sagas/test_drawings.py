"""The drawings, and that docs/states.md shows what the machine is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from milepost.sagas import graph
from milepost.sagas.definition import Definition
from milepost.sagas.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS
from milepost.schemas.options import Found, Probe, Repeat, Then
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepState

from tests.support.sagas import Delivered, add_step, add_tx, flow, new_saga

STATES = Path(__file__).parents[3] / "docs" / "states.md"


def shop() -> Definition:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    ship = add_step(saga, "ship", Repeat.ASK_FIRST, probe=True, irreversible=True)
    wait = saga.wait(
        "delivered",
        Delivered,
        match=lambda v: v.result(ship).id,
        timeout=timedelta(days=3),
        on_timeout=Then.RECONCILE,
    )

    @wait.probe
    async def ask(ctx: Any) -> Probe[Delivered]:
        return Found(Delivered(id="x"))

    add_tx(saga, "close", on_failure=Then.PERSON)
    return flow(saga)


def test_the_page_shows_the_machine_as_it_is() -> None:
    """Write the page anew with: python -c "from milepost.sagas.graph import states_mermaid as s; print(s())"."""
    page = STATES.read_text()
    assert graph.states_mermaid() in page


def test_every_state_is_drawn_and_every_final_one_ends() -> None:
    drawing = graph.states_mermaid()
    for state in {*RunState, *StepState}:
        assert f" {state.value}" in drawing
    for state in FINAL_RUN_STATES | FINAL_STEP_STATES:
        assert f"{state.value} --> [*]" in drawing
        assert not [arrow for arrow in (*RUN_TRANSITIONS, *STEP_TRANSITIONS) if arrow[0] == state]


def test_a_saga_is_drawn_with_its_undos_and_timeouts() -> None:
    assert graph.flow_mermaid(shop()) == (
        "flowchart TD\n"
        '    start_(["order v1"])\n'
        '    n_reserve["reserve<br/>SAFE"]\n'
        '    n_ship["ship<br/>ASK_FIRST<br/>probe<br/>irreversible"]\n'
        '    n_delivered{{"delivered<br/>waits for test.delivered<br/>then RECONCILE"}}\n'
        '    n_close["close<br/>TX<br/>on failure PERSON"]\n'
        '    end_(["SUCCEEDED"])\n'
        "    start_ --> n_reserve\n"
        "    n_reserve --> n_ship\n"
        "    n_ship --> n_delivered\n"
        "    n_delivered --> n_close\n"
        "    n_close --> end_\n"
        '    n_undo_reserve["undo_reserve"]\n'
        "    n_reserve -. undo .-> n_undo_reserve\n"
    )


def test_a_saga_as_json_has_every_node_and_edge() -> None:
    drawn = graph.flow_json(shop())
    assert [node["name"] for node in drawn["nodes"]] == [
        "reserve",
        "undo_reserve",
        "ship",
        "delivered",
        "close",
    ]
    assert {(edge["from"], edge["to"], edge["kind"]) for edge in drawn["edges"]} == {
        ("reserve", "undo_reserve", "undo"),
        ("reserve", "ship", "then"),
        ("ship", "delivered", "then"),
        ("delivered", "close", "then"),
    }
    assert drawn["nodes"][3]["on_timeout"] == "RECONCILE"
