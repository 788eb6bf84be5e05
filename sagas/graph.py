"""Drawings: of the state machine, and of a saga."""

from __future__ import annotations

from itertools import pairwise

from ..schemas.options import Then
from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, StepKind
from .definition import Definition, Node
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


def flow_mermaid(definition: Definition) -> str:
    """Return a saga as a mermaid flowchart: the way forward, what a timeout does, and the undos in reverse."""
    lines = ["flowchart TD", f'    start_(["{definition.title}"])']
    lines += [f"    {_id(node.name)}{_shape(node)}" for node in definition.nodes]
    names = ["start_", *(_id(node.name) for node in definition.nodes), "end_"]
    lines.append('    end_(["SUCCEEDED"])')
    lines += [f"    {before} --> {after}" for before, after in pairwise(names)]
    undos = [node for node in definition.nodes if node.undo is not None]
    for node in undos:
        assert node.undo is not None
        lines.append(f'    {_id(node.undo.name)}["{node.undo.name}"]')
        lines.append(f"    {_id(node.name)} -. undo .-> {_id(node.undo.name)}")
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    """Return an id that mermaid takes: no word of its own, no dots."""
    return "n_" + name.replace(".", "_").replace("-", "_")


def _shape(node: Node) -> str:
    if node.wait is not None:
        awaited = f"waits for {node.wait.event.milepost_spec.type}"
        return f'{{{{"{node.name}<br/>{awaited}<br/>then {node.wait.on_timeout.name}"}}}}'
    words = [node.name, "TX" if node.kind is StepKind.TX else node.repeat.name]
    words += ["probe"] if node.probe is not None else []
    words += ["irreversible"] if node.irreversible else []
    words += ["on failure PERSON"] if node.on_failure is Then.PERSON else []
    return f'["{"<br/>".join(words)}"]'


def flow_json(definition: Definition) -> Json:
    """Return a saga as `{"nodes": [...], "edges": [...]}` for machines."""
    nodes: list[Json] = []
    edges: list[Json] = []
    previous: str | None = None
    for node in definition.nodes:
        nodes.append(_node_json(node))
        if previous is not None:
            edges.append({"from": previous, "to": node.name, "kind": "then"})
        if node.undo is not None:
            nodes.append({"name": node.undo.name, "kind": StepKind.UNDO.value, "undo_of": node.name})
            edges.append({"from": node.name, "to": node.undo.name, "kind": "undo"})
        previous = node.name
    return {"saga": definition.name, "version": definition.version, "nodes": nodes, "edges": edges}


def _node_json(node: Node) -> Json:
    described: dict[str, Json] = {"name": node.name, "kind": node.kind.value}
    if node.wait is not None:
        return described | {
            "event": node.wait.event.milepost_spec.type,
            "timeout_s": node.wait.timeout.total_seconds(),
            "on_timeout": node.wait.on_timeout.name,
            "probe": node.probe is not None,
        }
    return described | {
        "repeat": node.repeat.name,
        "on_failure": node.on_failure.name,
        "queue": node.queue,
        "probe": node.probe is not None,
        "irreversible": node.irreversible,
    }
