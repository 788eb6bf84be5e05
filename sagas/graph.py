"""Drawings: of the state machine as mermaid text, and of a saga for machines."""

from __future__ import annotations

from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, StepState
from .drawing import END, START, Box, Drawing, Group, Part, edges_of
from .model import Json
from .transitions import RUN_TRANSITIONS, STEP_TRANSITIONS, in_order


def states_mermaid() -> str:
    """Return the tables of legal transitions as two mermaid state diagrams, in one Markdown text.

    Every arrow names who may cause it.
    """
    return f"## Run\n\n{_fenced(_run_diagram())}\n\n## Step, wait and undo\n\n{_fenced(_step_diagram())}\n"


def _fenced(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])


def _run_diagram() -> list[str]:
    arrows = [
        f"{before.value} --> {after.value}: {', '.join(in_order(causes))}"
        for (before, after), causes in RUN_TRANSITIONS.items()
    ]
    ends = [f"{state.value} --> [*]" for state in sorted(FINAL_RUN_STATES)]
    return ["[*] --> PENDING: start", *arrows, *ends]


def _step_diagram() -> list[str]:
    arrows = [
        f"{'[*]' if before is None else before.value} --> {after.value}: {', '.join(in_order(causes))}"
        for (before, after), causes in STEP_TRANSITIONS.items()
    ]
    return [*arrows, *(f"{state.value} --> [*]" for state in sorted(FINAL_STEP_STATES))]


def flow_json(drawing: Drawing) -> Json:
    """Return a drawing for machines.

    Returns:
        `saga`, `version`, `nodes` and `edges`; `groups` names the frames that a node stands in, outermost first. With a
        run also `run`, its `state` and `situation`, rows that the definition lacks as `strangers`, and for each node
        `state` (None where it was not reached), `tries`, `probes`, `code`, `in_doubt`, `undone` and `current`.
    """
    drawn: dict[str, Json] = {
        "saga": drawing.saga,
        "version": drawing.version,
        "limits": drawing.limits or None,
        "nodes": _nodes(drawing.flow, drawing, ()),
        "edges": [
            {"from": edge.before, "to": edge.after, "kind": edge.kind, "label": edge.label or None}
            for edge in edges_of(drawing)
            if edge.before != START and edge.after != END
        ],
    }
    run = drawing.run
    if run is None:
        return drawn
    return drawn | {
        "run": run.reference,
        "state": run.state.value,
        "situation": run.situation,
        "strangers": list(drawing.strangers),
    }


def _nodes(part: Part, drawing: Drawing, groups: tuple[str, ...]) -> list[Json]:
    if isinstance(part, Group):
        inside = groups if part.shape == "sequence" else (*groups, part.title or part.shape)
        return [node for inner in part.parts for node in _nodes(inner, drawing, inside)]
    boxes = [part] if part.undo is None else [part, part.undo]
    return [dict(box.data) | {"groups": list(groups)} | _state(box, drawing) for box in boxes]


def _state(box: Box, drawing: Drawing) -> dict[str, Json]:
    if drawing.run is None:
        return {}
    marks = drawing.run.marks
    mark = marks.get(box.name)
    undo = None if box.undo is None else marks.get(box.undo.name)
    return {
        "state": None if mark is None else mark.state.value,
        "iteration": "" if mark is None else mark.iteration,
        "tries": 0 if mark is None else mark.tries,
        "probes": 0 if mark is None else mark.probes,
        "code": None if mark is None else mark.code,
        "in_doubt": mark is not None and mark.doubt,
        "undone": undo is not None and undo.state is StepState.COMPENSATED,
        "current": box.current,
    }
