"""A drawing as a mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..schemas.states import StepKind
from .drawing import END, START, Box, Drawing, Group, Part, Tone, boxes_of, edges_of
from .standing import WAITING_KINDS

#: Fill, border and text of each tone; readable on light and dark paper, since each sets all three.
LOOKS: Final[Mapping[Tone, str]] = {
    "ahead": "fill:#f6f8fa,stroke:#8c959f,color:#57606a,stroke-dasharray:4 3",
    "live": "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    "done": "fill:#dafbe1,stroke:#1a7f37,color:#0f5323",
    "doubt": "fill:#fbefff,stroke:#8250df,color:#512a97",
    "failed": "fill:#ffebe9,stroke:#cf222e,color:#82071e",
    "person": "fill:#cf222e,stroke:#82071e,color:#ffffff",
    "undone": "fill:#fff8c5,stroke:#9a6700,color:#633c01",
    "over": "fill:#eaeef2,stroke:#57606a,color:#32383f",
}
_SHAPES: Final[Mapping[StepKind, tuple[str, str]]] = {
    StepKind.TX: ("[[", "]]"),
    StepKind.UNDO: ("(", ")"),
} | dict.fromkeys(WAITING_KINDS, ("{{", "}}"))
#: What could mean something to mermaid, Markdown or HTML; an underscore within a word does not.
_MEANT = re.compile(r"[^A-Za-z0-9 ,:./()_-]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_EVEN_SO = re.compile(r"\$(?=\$)|:(?=fa-)|\\(?=n)")


def flow_mermaid(drawing: Drawing) -> str:
    """Return a drawing as a mermaid flowchart (https://mermaid.js.org/syntax/flowchart.html).

    A transactional step has double sides, a wait is a hexagon, an undo is round and hangs on a dotted arrow. What a run
    says stands in words and colours the box; where the run is, the border is thick and the word "now" is there.
    """
    ids = _ids(drawing)
    lines = ["flowchart TD", f"    start_([{_text(*_head(drawing))}])"]
    lines += _nodes(drawing.flow, ids, 1)
    lines.append(f"    end_([{_text(drawing.ends.name, *drawing.ends.status)}])")
    if drawing.strangers:
        lines.append(f"    others_[{_text('rows that the definition lacks', *drawing.strangers)}]")
    for edge in edges_of(drawing):
        label = edge.label and f"|{_text(edge.label)}|"
        arrow = "-->" if edge.kind == "then" else "-.->"
        lines.append(f"    {ids[edge.before]} {arrow}{label} {ids[edge.after]}")
    return "\n".join(lines + _classes(drawing, ids)) + "\n"


def _head(drawing: Drawing) -> list[str]:
    run = drawing.run
    title = [drawing.title, drawing.limits]
    return title if run is None else [*title, f"{run.reference}: {run.state}", run.situation]


def _ids(drawing: Drawing) -> dict[str, str]:
    """Return an id for every name: no word of mermaid's, only what it takes, and no two alike."""
    ids = {START: "start_", END: "end_"}
    for box in boxes_of(drawing.flow):
        wanted = "n_" + re.sub(r"\W", "_", box.name, flags=re.ASCII)
        taken = set(ids.values())
        ids[box.name] = wanted if wanted not in taken else f"{wanted}_{len(ids)}x"
    return ids


def _nodes(part: Part, ids: Mapping[str, str], depth: int) -> list[str]:
    indent = "    " * depth
    if isinstance(part, Box):
        own = [f"{indent}{_node(part, ids)}"]
        return own if part.undo is None else [*own, f"{indent}{_node(part.undo, ids)}"]
    framed = part.shape != "sequence"
    inner = [line for each in part.parts for line in _nodes(each, ids, depth + framed)]
    if not framed or not inner:
        return inner
    first = next(boxes_of(part))
    return [f"{indent}subgraph g_{ids[first.name]}_{depth}[{_text(_frame(part))}]", *inner, f"{indent}end"]


def _frame(group: Group) -> str:
    return group.title or group.shape


def _node(box: Box, ids: Mapping[str, str]) -> str:
    opening, closing = _SHAPES.get(box.kind, ("[", "]"))
    status = ", ".join(box.status)
    text = _text(box.name, f"now: {status}" if box.current else status, ", ".join(box.facts))
    return f"{ids[box.name]}{opening}{text}{closing}"


def _text(*lines: str) -> str:
    """Write lines as a quoted label; a character that could mean something is written as its number.

    What means a formula, an icon or a new line even so gets a word joiner, which nobody sees.
    """
    plain = (_EVEN_SO.sub("\\g<0>\N{WORD JOINER}", " ".join(line.split())) for line in lines if line)
    written = (_MEANT.sub(lambda found: f"#{ord(found[0])};", line) for line in plain)
    return '"' + "<br/>".join(written) + '"'


def _classes(drawing: Drawing, ids: Mapping[str, str]) -> list[str]:
    boxes = list(boxes_of(drawing.flow))
    by_tone: dict[str, list[str]] = {}
    for box, name in [*((box, ids[box.name]) for box in boxes), (drawing.ends, ids[END])]:
        if box.tone != "plain":
            by_tone.setdefault(box.tone, []).append(name)
    lines = [f"    classDef {tone} {look}" for tone, look in LOOKS.items() if tone in by_tone]
    lines += [f"    class {','.join(names)} {tone}" for tone, names in by_tone.items()]
    current = [ids[box.name] for box in boxes if box.current]
    if current:
        lines += ["    classDef current stroke-width:4px", f"    class {','.join(current)} current"]
    return lines
