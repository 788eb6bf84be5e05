"""A saga drawn: mermaid, SVG and data say the same, every node once."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any, get_args

import pytest
from milepost.sagas.definition import Definition
from milepost.sagas.drawing import Drawing, Tone
from milepost.sagas.drawing_mermaid import LOOKS, flow_mermaid
from milepost.sagas.drawing_plan import draw, length
from milepost.sagas.drawing_svg import COLOURS, PAPER, flow_svg
from milepost.sagas.graph import flow_json
from milepost.sagas.saga import Saga
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then

from tests.support.drawings import SVG, Mermaid, names_of, svg_boxes, svg_full, svg_root, svg_words
from tests.support.sagas import Delivered, Done, Order, add_step, add_tx, flow, new_saga

NODES = ["reserve", "undo_reserve", "ship", "delivered", "pack", "close"]


def shop() -> Definition:
    """One of each: undo, probe, irreversible, wait, queue, timeout, transaction."""
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    ship = add_step(saga, "ship", Repeat.ASK_FIRST, probe=True, irreversible=True, on_failure=Then.PERSON)
    wait = saga.wait(
        "delivered",
        Delivered,
        match=lambda v: v.result(ship).id,
        timeout=timedelta(days=3),
        on_timeout=Then.RECONCILE,
        broadcast=True,
    )

    @wait.probe
    async def ask(ctx: Any) -> Probe[Delivered]:
        return Found(Delivered(id="x"))

    @saga.step(
        name="pack",
        repeat=Repeat.NEVER,
        queue="slow",
        retry=Retry(attempts=1),
        attempt_timeout=timedelta(minutes=90),
        on_failure=Then.PERSON,
        no_undo="it's <only> paper & string",
    )
    async def pack(ctx: Any) -> Done:
        return Done(id="x")

    add_tx(saga, "close", on_failure=Then.PERSON)
    return flow(saga)


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    return draw(shop())


def test_mermaid(drawing: Drawing) -> None:
    assert flow_mermaid(drawing) == (
        "flowchart TD\n"
        '    start_(["order v1"])\n'
        '    n_reserve["reserve<br/>SAFE, 3 tries of 30s"]\n'
        '    n_undo_reserve("undo_reserve<br/>3 tries of 30s")\n'
        '    n_ship["ship<br/>ASK_FIRST, probe, irreversible, 3 tries of 30s, on failure PERSON"]\n'
        '    n_delivered{{"delivered<br/>waits for test.delivered, 3d, then RECONCILE, probe, broadcast"}}\n'
        '    n_pack["pack<br/>NEVER, 1 try of 1h 30m, queue slow, on failure PERSON"]\n'
        '    n_close[["close<br/>TX, 3 tries of 10s, on failure PERSON"]]\n'
        '    end_(["SUCCEEDED"])\n'
        "    start_ --> n_reserve\n"
        '    n_reserve -.->|"undo"| n_undo_reserve\n'
        "    n_reserve --> n_ship\n"
        "    n_ship --> n_delivered\n"
        "    n_delivered --> n_pack\n"
        "    n_pack --> n_close\n"
        "    n_close --> end_\n"
    )


def test_ids_stay_apart_and_are_no_words_of_mermaid() -> None:
    saga = new_saga()
    for name in ("end", "a.b", "a_b", "a-b", "start_", "graph", "_private_", "1.", "9"):
        add_step(saga, name, no_undo="none")
    read = Mermaid(flow_mermaid(draw(flow(saga))))
    for name in ("end", "a.b", "a_b", "a-b", "start_", "graph", "_private_", "1.", "9"):
        assert read.named(name)
    assert len(read.nodes) == 11


def test_data_has_every_node_and_edge(drawing: Drawing) -> None:
    drawn = flow_json(drawing)
    assert json.loads(json.dumps(drawn)) == drawn
    assert names_of(drawn) == NODES
    assert {(edge["from"], edge["to"], edge["kind"]) for edge in drawn["edges"]} == {
        ("reserve", "undo_reserve", "undo"),
        ("reserve", "ship", "then"),
        ("ship", "delivered", "then"),
        ("delivered", "pack", "then"),
        ("pack", "close", "then"),
    }
    by_name = {node["name"]: node for node in drawn["nodes"]}
    assert by_name["delivered"] == {
        "name": "delivered",
        "kind": "WAIT",
        "event": "test.delivered",
        "timeout_s": 259200.0,
        "on_timeout": "RECONCILE",
        "broadcast": True,
        "probe": True,
        "groups": [],
    }
    assert (by_name["pack"]["queue"], by_name["pack"]["attempt_timeout_s"]) == ("slow", 5400.0)
    assert by_name["pack"]["no_undo"] == "it's <only> paper & string"
    assert by_name["undo_reserve"]["undo_of"] == "reserve"


def test_the_picture_shows_every_node_once_with_its_facts(drawing: Drawing) -> None:
    boxes = svg_boxes(flow_svg(drawing))
    assert list(boxes) == NODES
    assert svg_words(boxes["ship"]) == [
        "ship",
        "ASK_FIRST, probe",
        "irreversible",
        "3 tries of 30s",
        "on failure PERSON",
    ]
    assert svg_full(boxes["undo_reserve"]) == "undo_reserve: 3 tries of 30s"
    for name, element in (("delivered", "polygon"), ("close", "path"), ("reserve", "rect")):
        assert boxes[name].find(f"{SVG}{element}") is not None, name


def test_the_picture_is_told_in_words(drawing: Drawing) -> None:
    root = svg_root(flow_svg(drawing))
    title, told = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert told is not None
    assert root.get("role") == "img"
    assert (root.get("aria-labelledby") or "").split() == [title.get("id"), told.get("id")]
    assert title.text == "order v1"
    assert told.text == (
        "Undos run one at a time, last finished first. Begins with reserve. "
        "Step reserve, SAFE, 3 tries of 30s. Then ship. Undo of reserve: undo_reserve, 3 tries of 30s. "
        "Step ship, ASK_FIRST, probe, irreversible, 3 tries of 30s, on failure PERSON. Then delivered. "
        "Wait delivered, waits for test.delivered, 3d, then RECONCILE, probe, broadcast. Then pack. "
        "Step pack, NEVER, 1 try of 1h 30m, queue slow, on failure PERSON. Then close. "
        "Step close, TX, 3 tries of 10s, on failure PERSON. Then the end. The end: SUCCEEDED."
    )


def test_the_picture_needs_nothing_from_outside(drawing: Drawing) -> None:
    text = flow_svg(drawing)
    assert not [
        word for word in ("<script", "href", "url(", "@import", "<image", "foreignObject") if word in text
    ]
    assert "prefers-color-scheme:dark" in text


def test_what_is_as_everywhere_in_a_saga_is_left_out() -> None:
    saga = new_saga()
    add_step(saga, "one", on_failure=Then.FAIL)
    (box,) = draw(flow(saga)).flow.parts
    assert box.facts == ("SAFE", "3 tries of 30s"), "without an undo everything fails"  # type: ignore[union-attr]
    saga = new_saga()
    add_step(saga, "one", undo=True, on_failure=Then.FAIL)
    (box,) = draw(flow(saga)).flow.parts
    assert "on failure FAIL" in box.facts  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=200), "0.2s"),
        (timedelta(seconds=15), "15s"),
        (timedelta(minutes=90), "1h 30m"),
        (timedelta(days=3, seconds=1.5), "3d 1.5s"),
        (timedelta(microseconds=1), "1e-06s"),
    ],
)
def test_durations_are_exact(span: timedelta, words: str) -> None:
    assert length(span) == words


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_all_text_can_be_read_on_light_and_dark_paper() -> None:
    pairs = [(ink, paper) for paper, ink in zip(PAPER[::3], PAPER[1::3], strict=True)]
    pairs += [(soft, paper) for paper, soft in zip(PAPER[::3], PAPER[2::3], strict=True)]
    for colours in COLOURS.values():
        pairs += [(colours[2], colours[0]), (colours[5], colours[3])]
    for look in LOOKS.values():
        fill, text = (re.search(rf"(?<![a-z]){word}:(#\w+)", look) for word in ("fill", "color"))
        assert fill is not None
        assert text is not None
        pairs.append((text[1], fill[1]))
    assert len(pairs) == 4 + 2 * len(COLOURS) + len(LOOKS)
    assert [(text, fill) for text, fill in pairs if _contrast(text, fill) < 4.5] == []
    assert COLOURS.keys() == LOOKS.keys() | {"plain"} == set(get_args(Tone))


def test_what_limits_a_run_stands_above_its_flow() -> None:
    saga = Saga(
        "order",
        version=1,
        input=Order,
        key=lambda order: order.id,
        active_timeout=timedelta(hours=2),
        lock=lambda order: order.id,
        if_locked="reject",
    )
    add_step(saga, "one")
    drawing = draw(flow(saga))
    words = drawing.limits
    assert words.endswith(", one run at a time for each lock, the rest refused")
    assert words.startswith("active for at most ")
    assert Mermaid(flow_mermaid(drawing)).nodes["start_"] == ["order v1", words]
    assert words in " ".join(svg_words(svg_root(flow_svg(drawing))))
    assert flow_json(drawing)["limits"] == words
    assert draw(shop()).limits == ""
