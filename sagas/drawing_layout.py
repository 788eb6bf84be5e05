"""Where everything of a drawing stands: a vertical flow, undos in a lane at its right, groups as frames within frames.

All lengths are in pixels of the picture. Text is set in a font of fixed width, so that its width is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ..schemas.states import StepKind
from .drawing import Box, Drawing, Group, Part, boxes_of, label_of
from .drawing_text import HEADLINE, Line, columns_of, common_columns, lines_of, wrap

#: Width of a character at 13 px: fixed-width fonts are 0.6 em wide, or a little less.
CHAR: Final = 7.9
LINE: Final = 18.0
PAD: Final = 12.0
MARGIN: Final = 24.0
GAP: Final = 30.0
BESIDE: Final = 28.0
UNDO_GAP: Final = 64.0
HEAD: Final = 34.0
FORK: Final = 26.0
ROUND: Final = 30.0

Role: TypeAlias = Literal["box", "undo", "end"]
Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box with its upper left corner and size."""

    box: Box
    x: float
    y: float
    width: float
    height: float
    lines: tuple[Line, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class Frame:
    """A group's frame."""

    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Wire:
    """A line through points, with an arrowhead at its end where `arrow`."""

    points: tuple[Point, ...]
    dashed: bool = False
    arrow: bool = True


@dataclass(frozen=True, slots=True)
class Label:
    """A word at a wire; (x, y) is the middle of its base line."""

    text: str
    x: float
    y: float


@dataclass(slots=True)
class Layout:
    """A whole picture.

    Attributes:
        header: Lines above the flow; the first is the title.
    """

    header: list[str] = field(default_factory=list)
    boxes: list[PlacedBox] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True, slots=True)
class _Extent:
    """How far a part reaches from its axis to the left and right, and how high it is."""

    left: float
    right: float
    height: float


def lay_out(drawing: Drawing, *, start: Box, notes: Sequence[str]) -> Layout:
    """Place everything.

    Args:
        start: What the flow begins with.
        notes: Lines below the title.
    """
    whole = Group(parts=(start, drawing.flow, drawing.ends))
    placer = _Placer(whole, start, drawing.ends)
    extent, made = placer.extent(whole), placer.made
    columns = max(HEADLINE, int((extent.left + extent.right) / CHAR))
    made.header = [line for note in notes for line in wrap(note.split(), columns)]
    headline = max(columns_of(line) * CHAR for line in made.header)
    made.width = max(extent.left + extent.right, headline) + 2 * MARGIN
    top = MARGIN + LINE * (len(made.header) + 1)
    placer.put(whole, MARGIN + extent.left, top)
    made.height = top + extent.height + MARGIN
    return made


class _Placer:
    def __init__(self, whole: Group, *ends: Box) -> None:
        self._ends = ends
        boxes = list(boxes_of(whole))
        mains = [box for box in boxes if box.kind is not StepKind.UNDO]
        self._columns = common_columns(mains)
        self._undo_columns = common_columns([box for box in boxes if box.kind is StepKind.UNDO])
        self.wide = self._columns * CHAR + 2 * PAD
        self._undo_wide = self._undo_columns * CHAR + 2 * PAD
        self.made = Layout()

    def extent(self, part: Part) -> _Extent:
        if isinstance(part, Box):
            return self._box_extent(part)
        if part.shape in {"parallel", "choice"}:
            inner = self._ways(part)
            wide = sum(e.left + e.right for e in inner) + BESIDE * (len(inner) + 1)
            half = max(wide, (columns_of(part.title) + 2) * CHAR) / 2
            return _Extent(half, half, HEAD + 2 * FORK + max((e.height for e in inner), default=0.0))
        inner = [self.extent(each) for each in part.parts]
        solid = [e for e in inner if e.height]
        high = sum(e.height for e in solid) + GAP * max(0, len(solid) - 1)
        left, right = max((e.left for e in inner), default=0.0), max((e.right for e in inner), default=0.0)
        if part.shape == "loop":
            left = max(left, self.wide / 2) + BESIDE + ROUND
            right = max(right, (columns_of(part.title) + 2) * CHAR - left) + BESIDE
            return _Extent(left, right, HEAD + high + 2 * FORK)
        return _Extent(left, right, high)

    def _ways(self, group: Group) -> list[_Extent]:
        """Return the extents of parts that stand beside each other, wide enough for what leads into them."""
        found = []
        for place, each in enumerate(group.parts):
            extent, label = self.extent(each), columns_of(label_of(group, place)) * CHAR / 2
            found.append(_Extent(max(extent.left, label), max(extent.right, label), extent.height))
        return found

    def _box_extent(self, box: Box) -> _Extent:
        half, high = self.wide / 2, self._high(box, self._columns)
        if box.undo is None:
            return _Extent(half, half, high)
        beside = self._high(box.undo, self._undo_columns)
        return _Extent(half, half + UNDO_GAP + self._undo_wide, max(high, beside))

    @staticmethod
    def _high(box: Box, columns: int) -> float:
        return len(lines_of(box, columns)) * LINE + 2 * PAD - 4

    def put(self, part: Part, x: float, y: float) -> float:
        """Place a part whose axis is at x, from y downwards; return where the way goes on from."""
        if isinstance(part, Box):
            return self._put_box(part, x, y)
        if part.shape in {"parallel", "choice"}:
            return self._put_beside(part, x, y)
        if part.shape == "loop":
            return self._put_loop(part, x, y)
        return self._put_sequence(part.parts, x, y)

    def _put_sequence(self, parts: Iterable[Part], x: float, y: float) -> float:
        bottom: float | None = None
        for part in parts:
            high = self.extent(part).height
            if not high:
                continue
            if bottom is not None:
                self.made.wires.append(Wire(((x, bottom), (x, y))))
            bottom = self.put(part, x, y)
            y += high + GAP
        return y if bottom is None else bottom

    def _put_box(self, box: Box, x: float, y: float) -> float:
        high = self._high(box, self._columns)
        lines = tuple(lines_of(box, self._columns))
        role: Role = "end" if any(box is end for end in self._ends) else "box"
        self.made.boxes.append(PlacedBox(box, x - self.wide / 2, y, self.wide, high, lines, role))
        if box.undo is not None:
            at, level = x + self.wide / 2, y + PAD + LINE / 2
            beside = self._high(box.undo, self._undo_columns)
            undo_lines = tuple(lines_of(box.undo, self._undo_columns))
            self.made.boxes.append(
                PlacedBox(box.undo, at + UNDO_GAP, y, self._undo_wide, beside, undo_lines, "undo")
            )
            self.made.wires.append(Wire(((at, level), (at + UNDO_GAP, level)), dashed=True))
            self.made.labels.append(Label("undo", at + UNDO_GAP / 2, level - 6))
        return y + high

    def _frame(self, group: Group, x: float, y: float) -> float:
        extent = self.extent(group)
        title = group.title or group.shape
        self.made.frames.append(Frame(title, x - extent.left, y, extent.left + extent.right, extent.height))
        return y + extent.height

    def _put_beside(self, group: Group, x: float, y: float) -> float:
        bottom = self._frame(group, x, y)
        inner = self._ways(group)
        wide = sum(e.left + e.right for e in inner) + BESIDE * (len(inner) - 1)
        at, axes = x - wide / 2, []
        for place, (each, extent) in enumerate(zip(group.parts, inner, strict=True)):
            axis, top = at + extent.left, y + HEAD + FORK
            axes.append(axis)
            below = self.put(each, axis, top) if extent.height else None
            self.made.wires.append(Wire(((axis, y + HEAD), (axis, top)), arrow=below is not None))
            self.made.wires.append(
                Wire(((axis, top if below is None else below), (axis, bottom - FORK / 2)), arrow=False)
            )
            if label := label_of(group, place):
                self.made.labels.append(Label(label, axis, y + HEAD - 5))
            at += extent.left + extent.right + BESIDE
        for level in (y + HEAD, bottom - FORK / 2) if len(axes) > 1 else ():
            self.made.wires.append(Wire(((axes[0], level), (axes[-1], level)), arrow=False))
        return bottom

    def _put_loop(self, group: Group, x: float, y: float) -> float:
        bottom = self._frame(group, x, y)
        top, low = y + HEAD + FORK, bottom - FORK / 2
        below = self._put_sequence(group.parts, x, top)
        aside = x - self.extent(group).left + BESIDE
        back: tuple[Point, ...] = (
            (x, below),
            (x, low),
            (aside, low),
            (aside, top - FORK),
            (x, top - FORK),
            (x, top),
        )
        self.made.wires.append(Wire(back))
        self.made.labels.append(Label("again", aside + ROUND, low + 10))
        return bottom
