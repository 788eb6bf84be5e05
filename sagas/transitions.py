"""The legal transitions of runs and steps, and who may cause each. Everything else is a bug.

`decide` asserts each change against these tables; `graph.states_mermaid` draws them; docs/states.md shows the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ..schemas.states import RunState, StepState

Cause: TypeAlias = Literal["start", "worker", "timer", "sweep", "signal"]

R = RunState
S = StepState

RUN_TRANSITIONS: Final[Mapping[tuple[RunState, RunState], frozenset[Cause]]] = {}
STEP_TRANSITIONS: Final[Mapping[tuple[StepState | None, StepState], frozenset[Cause]]] = {}


def check_step(before: StepState | None, after: StepState, cause: Cause) -> None:
    """Assert that a step may go from one state to the other because of this cause."""


def check_run(before: RunState, after: RunState, cause: Cause) -> None:
    """Assert that a run may go from one state to the other because of this cause."""
