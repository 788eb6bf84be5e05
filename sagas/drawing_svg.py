"""A drawing as SVG: one file with nothing from outside, readable on light and on dark paper, and in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from ..schemas.states import StepKind
from .drawing import END, START, Box, Drawing, Tone, boxes_of, edges_of
from .drawing_layout import LINE, MARGIN, PAD, Frame, Label, Layout, PlacedBox, Wire, lay_out
from .drawing_plan import run_tone
from .standing import WAITING_KINDS

#: By tone: fill, border and text on light paper, then on dark. Text on fill has a contrast of 4.5 or more (WCAG 1.4.3).
COLOURS: Final[Mapping[Tone, tuple[str, str, str, str, str, str]]] = {
    "plain": ("#ffffff", "#57606a", "#1f2328", "#161b22", "#8b949e", "#e6edf3"),
    "ahead": ("#ffffff", "#8c959f", "#57606a", "#0d1117", "#6e7681", "#9aa4af"),
    "live": ("#ddf4ff", "#0969da", "#0a3069", "#0c2d6b", "#58a6ff", "#cae8ff"),
    "done": ("#dafbe1", "#1a7f37", "#0f5323", "#0f2d1a", "#3fb950", "#aff5b4"),
    "doubt": ("#fbefff", "#8250df", "#512a97", "#2b1c4d", "#bc8cff", "#eddeff"),
    "failed": ("#ffebe9", "#cf222e", "#82071e", "#3c1216", "#f85149", "#ffdcd7"),
    "person": ("#cf222e", "#82071e", "#ffffff", "#da3633", "#ffa198", "#ffffff"),
    "undone": ("#fff8c5", "#9a6700", "#633c01", "#341a00", "#d29922", "#f8e3a1"),
    "over": ("#eaeef2", "#57606a", "#32383f", "#21262d", "#8b949e", "#c9d1d9"),
}
PAPER: Final = ("#ffffff", "#1f2328", "#57606a", "#0d1117", "#e6edf3", "#9aa4af")
#: What XML 1.0 cannot hold (section 2.2), and controls that no reader shows.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: How far a wait's sides are drawn out.
_POINT: Final = 10.0


def flow_svg(drawing: Drawing, *, styled: bool = True) -> str:
    """Return a drawing as the text of an SVG 1.1 file.

    A transactional step has double sides, a wait is a hexagon, an undo has a dashed border and stands at the right of
    its step. What a run says stands in words and colours the box; where the run is, the border is thick and the word
    "now" is there. The whole is told in words in `desc`.

    Args:
        styled: With its own colours; without, its classes are for a page's style sheet.
    """
    made = lay_out(drawing, start=Box(name="start", kind=StepKind.STEP), notes=_notes(drawing))
    name = re.sub(r"\W", "-", f"{drawing.saga}-{drawing.version}", flags=re.ASCII)
    width, height = _number(made.width), _number(made.height)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="milepost" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{_text(_title(drawing))}</title>',
        f'<desc id="{name}-desc">{_text(_told(drawing))}</desc>',
        *([f"<style>{_style()}</style>"] if styled else []),
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *_header(drawing, made),
        *(_frame(frame) for frame in made.frames),
        *(_wire(wire) for wire in made.wires),
        *(_label(label) for label in made.labels),
        *(_box(placed) for placed in made.boxes),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _text(text: str) -> str:
    return escape(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# --- words ------------------------------------------------------------------------------------------


def _title(drawing: Drawing) -> str:
    run = drawing.run
    return drawing.title if run is None else f"{drawing.title}, run {run.reference}: {run.state}"


def _notes(drawing: Drawing) -> list[str]:
    """Return the lines below the title."""
    run, notes = drawing.run, [drawing.title, *([drawing.limits] if drawing.limits else [])]
    if run is not None:
        notes += [f"{run.reference}: {run.state}"] + ([run.situation] if run.situation else [])
    if drawing.strangers:
        notes.append(f"The run also has rows that the definition lacks: {', '.join(drawing.strangers)}.")
    if any(box.kind is StepKind.UNDO for box in boxes_of(drawing.flow)):
        notes.append("Undos run one at a time, last finished first.")
    return notes


def _told(drawing: Drawing) -> str:
    """Tell the whole drawing in words, for who does not see it."""
    follows: dict[str, list[str]] = {}
    for edge in edges_of(drawing):
        if edge.kind != "undo":
            after = "the end" if edge.after == END else edge.after
            how = f" ({edge.label})" if edge.label else ""
            follows.setdefault(edge.before, []).append(after + how)
    sentences = [f"Begins with {' and '.join(follows[START])}."]
    for box in boxes_of(drawing.flow):
        then = f" Then {' and '.join(follows[box.name])}." if box.name in follows else ""
        sentences.append(f"{_described(box)}.{then}")
    sentences.append(f"The end: {', '.join((drawing.ends.name, *drawing.ends.status))}.")
    return " ".join([*_notes(drawing)[1:], *sentences])


def _described(box: Box) -> str:
    kind = {StepKind.UNDO: f"Undo of {box.data.get('undo_of', 'a step')}:"}
    kind |= {waiting: waiting.value.capitalize() for waiting in WAITING_KINDS}
    now = ("the run is here",) if box.current else ()
    return f"{kind.get(box.kind, 'Step')} {', '.join((box.name, *now, *box.status, *box.facts))}"


# --- marks ------------------------------------------------------------------------------------------


def _header(drawing: Drawing, made: Layout) -> list[str]:
    tone = "plain" if drawing.run is None else run_tone(drawing.run.state)
    lines = [
        f'<text class="{"title" if n == 0 else "note"}" x="{_number(MARGIN)}" y="{_number(MARGIN + LINE * (n + 0.7))}" '
        f'xml:space="preserve">{_text(line)}</text>'
        for n, line in enumerate(made.header)
    ]
    if drawing.run is not None:
        lines.append(
            f'<rect class="run {tone}" x="{_number(MARGIN - 14)}" y="{_number(MARGIN)}" width="6" '
            f'height="{_number(LINE * len(made.header))}" rx="3"/>'
        )
    return lines


def _frame(frame: Frame) -> str:
    return (
        f'<g><rect class="frame" x="{_number(frame.x)}" y="{_number(frame.y)}" width="{_number(frame.width)}" '
        f'height="{_number(frame.height)}" rx="10"/><text class="note" x="{_number(frame.x + PAD)}" '
        f'y="{_number(frame.y + LINE)}">{_text(frame.title)}</text></g>'
    )


def _wire(wire: Wire) -> str:
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in wire.points)
    dashed = " dashed" if wire.dashed else ""
    line = f'<polyline class="wire{dashed}" points="{points}"/>'
    if not wire.arrow:
        return line
    (x0, _), (x, y) = wire.points[-2:]
    tips = [(x, y), (x - 4, y - 8), (x + 4, y - 8)] if x == x0 else [(x, y), (x - 8, y - 4), (x - 8, y + 4)]
    head = " ".join(f"{_number(a)},{_number(b)}" for a, b in tips)
    return f'{line}<polygon class="tip" points="{head}"/>'


def _label(label: Label) -> str:
    x, y = _number(label.x), _number(label.y)
    return f'<text class="small" x="{x}" y="{y}" text-anchor="middle">{_text(label.text)}</text>'


def _box(placed: PlacedBox) -> str:
    box = placed.box
    classes = " ".join(["box", placed.role, box.tone, *(["current"] if box.current else [])])
    whole = " ".join((f"{box.name}:", ", ".join((*box.status, *box.facts)))).rstrip(": ")
    lines = [
        f'<text class="{line.style}" x="{_number(placed.x + placed.width / 2)}" '
        f'y="{_number(placed.y + PAD - 2 + LINE * (n + 0.7))}" text-anchor="middle">{_text(line.text)}</text>'
        for n, line in enumerate(placed.lines)
    ]
    name = "" if placed.role == "end" else f" data-name={quoteattr(box.name)}"
    return f'<g class="{classes}"{name}><title>{_text(whole)}</title>{_outline(placed)}{"".join(lines)}</g>'


def _outline(placed: PlacedBox) -> str:
    x, y, wide, high = placed.x, placed.y, placed.width, placed.height
    if placed.box.kind in WAITING_KINDS:
        middle = y + high / 2
        points = [
            *((x, y), (x + wide, y), (x + wide + _POINT, middle)),
            *((x + wide, y + high), (x, y + high), (x - _POINT, middle)),
        ]
        return (
            f'<polygon class="shape" points="{" ".join(f"{_number(a)},{_number(b)}" for a, b in points)}"/>'
        )
    round_ = high / 2 if placed.role == "end" else 6
    shape = (
        f'<rect class="shape" x="{_number(x)}" y="{_number(y)}" width="{_number(wide)}" height="{_number(high)}" '
        f'rx="{_number(round_)}"/>'
    )
    if placed.box.kind is not StepKind.TX:
        return shape
    sides = (f"M{_number(a)} {_number(y)}v{_number(high)}" for a in (x + PAD / 2, x + wide - PAD / 2))
    return f'{shape}<path class="side" d="{"".join(sides)}"/>'


def _style() -> str:
    fixed = (
        ".milepost text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        ".milepost .title{font-size:15px;font-weight:bold}.milepost .name{font-weight:bold}"
        ".milepost .fact{font-size:12px}.milepost .small{font-size:11px}.milepost .wire{fill:none;stroke-width:1.5}"
        ".milepost .dashed,.milepost .undo .shape,.milepost .ahead .shape{stroke-dasharray:4 3}"
        ".milepost .frame,.milepost .side{fill:none}.milepost .shape{stroke-width:1.5}"
        ".milepost .current .shape{stroke-width:4}"
    )
    return fixed + _colours(0) + "@media (prefers-color-scheme:dark){" + _colours(3) + "}"


def _colours(first: int) -> str:
    paper, ink, soft = PAPER[first : first + 3]
    rules = [
        f".milepost .paper{{fill:{paper}}}.milepost text{{fill:{ink}}}",
        f".milepost .note,.milepost .small{{fill:{soft}}}.milepost .wire,.milepost .frame{{stroke:{soft}}}",
        f".milepost .tip{{fill:{soft}}}",
    ]
    for tone, colours in COLOURS.items():
        fill, border, text = colours[first : first + 3]
        rules.append(
            f".milepost .{tone} .shape{{fill:{fill};stroke:{border}}}.milepost .{tone} text{{fill:{text}}}"
            f".milepost .{tone} .side{{stroke:{border}}}.milepost .run.{tone}{{fill:{border}}}"
        )
    return "".join(rules)
