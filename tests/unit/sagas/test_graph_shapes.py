"""Drawings of any shape: nothing lost, nothing twice, nothing on top of another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.sagas.drawing import Box, Drawing, Group, Mark, Part, Progress, Shape, boxes_of, edges_of
from milepost.sagas.drawing_layout import MARGIN, Layout, PlacedBox, lay_out
from milepost.sagas.drawing_mermaid import flow_mermaid
from milepost.sagas.drawing_plan import draw, with_run
from milepost.sagas.drawing_svg import flow_svg
from milepost.sagas.drawing_text import WIDE, columns_of, cut
from milepost.sagas.graph import flow_json
from milepost.schemas.options import Repeat
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.drawings import Mermaid, names_of, svg_boxes, svg_words
from tests.support.sagas import add_step, add_tx, flow, new_saga

MAINS = (StepKind.STEP, StepKind.TX, StepKind.WAIT)
PHRASES = st.lists(st.text(min_size=1, max_size=50).filter(str.strip), max_size=4).map(tuple)
TITLES = st.text(max_size=60)


@st.composite
def boxes(draw: Any) -> Box:
    undo = Box(name="?", kind=StepKind.UNDO, facts=draw(PHRASES)) if draw(st.booleans()) else None
    return Box(name="?", kind=draw(st.sampled_from(MAINS)), facts=draw(PHRASES), undo=undo)


def group(shape: Shape, parts: list[Part], title: str) -> Group:
    labels = tuple(f"way {n}" for n in range(len(parts))) if shape == "choice" else ()
    return Group(shape=shape, parts=tuple(parts), title=title, labels=labels)


PARTS: st.SearchStrategy[Part] = st.recursive(
    boxes(),
    lambda inner: st.builds(
        group,
        st.sampled_from(["sequence", "parallel", "choice", "loop"]),
        st.lists(inner, max_size=3),
        TITLES,
    ),
    max_leaves=8,
)


def numbered(part: Part, numbers: Iterator[int]) -> Part:
    """Give every box a name of its own, some of them long or alike to mermaid."""
    if isinstance(part, Group):
        parts = tuple(numbered(inner, numbers) for inner in part.parts)
        return Group(shape=part.shape, title=part.title, parts=parts, labels=part.labels)
    n = next(numbers)
    name = ("end", "a.b", "a_b", f"_{'x' * 190}_", "A-b")[n % 5] + str(n)
    undo = None
    if part.undo is not None:
        facts = part.undo.facts
        undo = Box(name=f"undo.{name}", kind=StepKind.UNDO, facts=facts, data={"name": f"undo.{name}"})
    return Box(name=name, kind=part.kind, facts=part.facts, undo=undo, data={"name": name})


@st.composite
def drawings(draw: Any) -> Drawing:
    parts = [
        numbered(part, numbers)
        for numbers in [itertools.count()]
        for part in draw(st.lists(PARTS, max_size=4))
    ]
    return Drawing(saga="s", version=1, title="s v1", flow=Group(parts=tuple(parts)))


@st.composite
def with_runs(draw: Any) -> Drawing:
    drawing: Drawing = draw(drawings())
    names = [box.name for box in boxes_of(drawing.flow)]
    marks = st.builds(
        Mark,
        state=st.sampled_from(StepState),
        tries=st.integers(0, 99),
        code=st.none() | st.text(max_size=80),
    )
    return with_run(
        drawing,
        Progress(
            reference=draw(st.text(max_size=600)),
            state=draw(st.sampled_from(RunState)),
            situation=draw(st.text(max_size=200)),
            marks=draw(st.dictionaries(st.sampled_from(names), marks)) if names else {},
        ),
    )


@given(st.one_of(drawings(), with_runs()))
@settings(max_examples=50, deadline=None)
def test_every_box_is_in_every_drawing_once(drawing: Drawing) -> None:
    names = [box.name for box in boxes_of(drawing.flow)]
    found = svg_boxes(flow_svg(drawing))
    assert sorted(found) == sorted(names)
    for name, box in found.items():
        assert svg_words(box)[0] in {name, cut(name, WIDE)}
    read = Mermaid(flow_mermaid(drawing))
    assert sorted(lines[0] for each, lines in read.nodes.items() if each.startswith("n_")) == sorted(names)
    assert names_of(flow_json(drawing)) == names


@given(drawings())
@settings(max_examples=50, deadline=None)
def test_every_box_is_on_a_way_from_start_to_end(drawing: Drawing) -> None:
    edges = edges_of(drawing)
    forward: dict[str, set[str]] = {}
    for edge in edges:
        forward.setdefault(edge.before, set()).add(edge.after)
    reached, ahead = {"(start)"}, ["(start)"]
    while ahead:
        new = forward.get(ahead.pop(), set()) - reached
        reached |= new
        ahead += new
    assert reached == {"(start)", "(end)"} | {box.name for box in boxes_of(drawing.flow)}
    mains = {box.name for box in boxes_of(drawing.flow) if box.kind is not StepKind.UNDO}
    assert {name for name in mains if not forward.get(name)} == set(), "a way that ends nowhere"


def placed(drawing: Drawing) -> Layout:
    return lay_out(drawing, start=Box(name="start", kind=StepKind.STEP), notes=["s v1"])


def apart(one: PlacedBox, other: PlacedBox) -> bool:
    beside = one.x + one.width <= other.x + 0.01 or other.x + other.width <= one.x + 0.01
    below = one.y + one.height <= other.y + 0.01 or other.y + other.height <= one.y + 0.01
    return beside or below


@given(st.one_of(drawings(), with_runs()))
@settings(max_examples=50, deadline=None)
def test_no_box_covers_another_and_all_are_on_the_paper(drawing: Drawing) -> None:
    made = placed(drawing)
    for one, other in itertools.combinations(made.boxes, 2):
        assert apart(one, other), (one.box.name, other.box.name)
    for box in made.boxes:
        assert box.x >= MARGIN - 0.01
        assert box.x + box.width <= made.width - MARGIN + 0.01
        assert box.y + box.height <= made.height - MARGIN + 0.01
    for frame in made.frames:
        for box in made.boxes:
            inside = frame.x <= box.x and box.x + box.width <= frame.x + frame.width + 0.01
            within = frame.y <= box.y and box.y + box.height <= frame.y + frame.height + 0.01
            outside = box.y + box.height <= frame.y + 0.01 or box.y >= frame.y + frame.height - 0.01
            aside = box.x + box.width <= frame.x + 0.01 or box.x >= frame.x + frame.width - 0.01
            assert (inside and within) or outside or aside
    for wire in made.wires:
        for x, y in wire.points:
            assert 0 <= x <= made.width
            assert 0 <= y <= made.height


NAMES = st.from_regex(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"), fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=30, deadline=None)
def test_any_saga_can_be_drawn(names: list[str], data: st.DataObject) -> None:
    saga = new_saga()
    for name in names:
        if f"undo_{name}" in names or data.draw(st.booleans()):
            add_tx(saga, name, no_undo="none")
        else:
            add_step(saga, name, Repeat.SAFE, undo=True)
    drawing = draw(flow(saga))
    expected = [box.name for box in boxes_of(drawing.flow)]
    assert names_of(flow_json(drawing)) == expected
    assert sorted(svg_boxes(flow_svg(drawing))) == sorted(expected)
    read = Mermaid(flow_mermaid(drawing))
    assert len(read.nodes) == len(expected) + 2
    for name in expected:
        assert read.named(name)


@given(st.text().filter(lambda text: "…" not in text), st.integers(3, 60))
def test_what_is_cut_fits_and_keeps_both_ends(text: str, columns: int) -> None:
    short = cut(text, columns)
    assert columns_of(short) <= columns
    if short != text:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)
