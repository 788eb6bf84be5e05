"""The drawing of the states, and that docs/states.md shows what the machine is."""

from __future__ import annotations

from pathlib import Path

from milepost.sagas import graph
from milepost.sagas.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepState

STATES = Path(__file__).parents[3] / "docs" / "states.md"


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
