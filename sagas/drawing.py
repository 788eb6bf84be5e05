"""A saga as it is drawn: boxes in nested groups, and what a run says of each. Pure data without coordinates.

drawing_plan.py makes it of a definition and a run; drawing_mermaid.py, drawing_svg.py and `graph.flow_json` make text
of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ..schemas.states import RunState, StepKind, StepState
from .model import Json

#: How a box looks in a run; "plain" without one. Each tone is also said in words.
Tone: TypeAlias = Literal["plain", "ahead", "live", "done", "doubt", "failed", "person", "undone", "over"]
Shape: TypeAlias = Literal["sequence", "parallel", "choice", "loop"]

#: Ends of the flow in `edges`; no name of a step looks like them.
START: Final = "(start)"
END: Final = "(end)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a run says of one step, wait or undo.

    Attributes:
        tries: Tries begun so far.
        probes: Probes asked since the outcome became unknown.
        code: Of its failure, or of the try before.
        doubt: Nobody knows whether a failed step took effect.
        iteration: Which round it is about; '' outside loops.
    """

    state: StepState
    tries: int = 0
    probes: int = 0
    code: str | None = None
    doubt: bool = False
    iteration: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands.

    Attributes:
        reference: What a person calls it: "order/o-1".
        situation: In a few words where it stands; '' for none.
        marks: By name of a step, wait or undo; a name without a mark has not been reached.
    """

    reference: str
    state: RunState
    situation: str = ""
    marks: Mapping[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One step, wait or undo.

    Attributes:
        facts: What the definition says of it, in short phrases.
        status: What the run says of it, in short phrases; () without a run.
        current: The run is at it.
        undo: The undo beside it.
        data: The same for machines.
    """

    name: str
    kind: StepKind
    facts: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    tone: Tone = "plain"
    current: bool = False
    undo: Box | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Boxes and groups that belong together.

    Attributes:
        shape: sequence = one after the other; parallel = all; choice = one of them; loop = again and again.
        title: Written on its frame; a sequence has none.
        parts: What is in it, in order; an empty sequence is a way past.
        labels: By part, what leads into it ("paid", "otherwise"); shorter than `parts` where nothing does.
    """

    shape: Shape = "sequence"
    title: str = ""
    parts: tuple[Part, ...] = ()
    labels: tuple[str, ...] = ()


Part: TypeAlias = Box | Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A saga, with a run on top of it where there is one.

    Attributes:
        title: "order v1".
        limits: What limits a run, in a few words; '' for nothing.
        ends: What the last box leads to.
        strangers: Names of the run's rows that the definition does not have.
        kept: Names of the rows of its choices and loops, which have no box.
    """

    saga: str
    version: int
    title: str
    flow: Group
    limits: str = ""
    run: Progress | None = None
    ends: Box = field(default_factory=lambda: Box(name="SUCCEEDED", kind=StepKind.STEP))
    strangers: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow: `kind` then, undo or again; START and END stand for the ends of the flow."""

    before: str
    after: str
    kind: Literal["then", "undo", "again"] = "then"
    label: str = ""


def boxes_of(part: Part) -> Iterator[Box]:
    """Yield every box, each undo right after what it undoes."""
    if isinstance(part, Box):
        yield part
        if part.undo is not None:
            yield part.undo
        return
    for inner in part.parts:
        yield from boxes_of(inner)


def edges_of(drawing: Drawing) -> list[Edge]:
    """Return every arrow of a drawing, from START to END."""
    edges: list[Edge] = []
    ends = _lead(drawing.flow, [(START, "")], edges)
    return edges + [Edge(before, END, label=label) for before, label in ends]


def _lead(part: Part, ends: list[tuple[str, str]], edges: list[Edge]) -> list[tuple[str, str]]:
    """Lead the open ends (box and label) into a part; return the ends that it leaves open."""
    if isinstance(part, Box):
        edges += [Edge(before, part.name, label=label) for before, label in ends]
        if part.undo is not None:
            edges.append(Edge(part.name, part.undo.name, "undo", "undo"))
        return [(part.name, "")]
    if part.shape in {"parallel", "choice"} and part.parts:
        left: list[tuple[str, str]] = []
        for place, inner in enumerate(part.parts):
            label = label_of(part, place)
            left += _lead(inner, [(before, label or given) for before, given in ends], edges)
        return list(dict.fromkeys(left))
    opened = ends
    for inner in part.parts:
        opened = _lead(inner, opened, edges)
    if part.shape == "loop":
        edges += [Edge(b, first, "again", "again") for b, _ in opened for first in _first(part) if b != START]
    return opened


def _first(part: Part) -> list[str]:
    if isinstance(part, Box):
        return [part.name]
    firsts = [_first(inner) for inner in part.parts]
    if part.shape in {"parallel", "choice"}:
        return [name for names in firsts for name in names]
    return next((names for names in firsts if names), [])


def label_of(group: Group, place: int) -> str:
    """Return what leads into a group's part."""
    return group.labels[place] if place < len(group.labels) else ""
