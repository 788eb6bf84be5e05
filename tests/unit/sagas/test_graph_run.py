"""A run on top of its saga: where it is, what was tried, what was undone, what was not reached."""

from __future__ import annotations

import pytest
from milepost.sagas.drawing import Box, Drawing, Group, Mark, Progress
from milepost.sagas.drawing_mermaid import flow_mermaid
from milepost.sagas.drawing_plan import draw, with_run
from milepost.sagas.drawing_svg import flow_svg
from milepost.sagas.graph import flow_json
from milepost.schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState

from tests.support.drawings import SVG, Mermaid, svg_boxes, svg_root, svg_words
from tests.support.sagas import add_step, flow, new_saga


def drawn(state: RunState, reference: str = "order/o-1", situation: str = "", **marks: Mark) -> Drawing:
    saga = new_saga()
    for name in ("one", "two", "three"):
        add_step(saga, name, undo=name != "three", no_undo="it is the last" if name == "three" else None)
    return draw(flow(saga), Progress(reference=reference, state=state, situation=situation, marks=marks))


def undoing() -> Drawing:
    return drawn(
        RunState.COMPENSATING,
        situation="undo_one COMPENSATING for 3s",
        one=Mark(state=StepState.SUCCEEDED, tries=1, code="SLOW"),
        two=Mark(state=StepState.SUCCEEDED, tries=4, probes=2),
        three=Mark(state=StepState.FAILED, tries=3, code="NO", doubt=True),
        undo_two=Mark(state=StepState.COMPENSATED, tries=2, code="BUSY"),
        undo_one=Mark(state=StepState.COMPENSATING, tries=2, code="BUSY"),
    )


def test_each_step_says_its_state_and_tries_in_words() -> None:
    read = Mermaid(flow_mermaid(undoing()))
    said = {name: read.nodes[read.named(name)][1] for name in ("one", "two", "three", "undo_two", "undo_one")}
    assert said == {
        "one": "SUCCEEDED, 1 try",
        "two": "SUCCEEDED, 4 tries, probed 2x, undone",
        "three": "FAILED, outcome in doubt, 3 tries, NO",
        "undo_two": "COMPENSATED, 2 tries",
        "undo_one": "now: COMPENSATING, 2 tries, last try: BUSY",
    }
    assert read.nodes["start_"] == ["order v1", "order/o-1: COMPENSATING", "undo_one COMPENSATING for 3s"]
    assert read.nodes["end_"] == ["SUCCEEDED", "not reached"]
    assert read.classes[read.named("undo_one")] == {"undone", "current"}
    assert read.classes[read.named("two")] == {"undone"}
    assert read.classes[read.named("one")] == {"done"}


def test_the_picture_says_the_same() -> None:
    text = flow_svg(undoing())
    boxes = svg_boxes(text)
    assert svg_words(boxes["undo_one"])[:2] == ["undo_one", "now: COMPENSATING, 2 tries"]
    classes = {name: set((box.get("class") or "").split()) - {"box"} for name, box in boxes.items()}
    assert classes == {
        "one": {"done"},
        "undo_one": {"undo", "undone", "current"},
        "two": {"undone"},
        "undo_two": {"undo", "undone"},
        "three": {"failed"},
    }
    told = svg_root(text).findtext(f"{SVG}desc") or ""
    assert "Undo of one: undo_one, the run is here, COMPENSATING, 2 tries" in told
    assert "order/o-1: COMPENSATING" in told
    assert svg_root(text).findtext(f"{SVG}title") == "order v1, run order/o-1: COMPENSATING"


def test_data_has_what_the_run_says() -> None:
    data = flow_json(undoing())
    assert (data["run"], data["state"], data["strangers"]) == ("order/o-1", "COMPENSATING", [])
    nodes = {node["name"]: node for node in data["nodes"]}
    assert [name for name, node in nodes.items() if node["current"]] == ["undo_one"]
    assert [name for name, node in nodes.items() if node["undone"]] == ["two"]
    assert nodes["three"].items() >= {"state": "FAILED", "tries": 3, "code": "NO", "in_doubt": True}.items()
    assert (nodes["two"]["attempts"], nodes["two"]["tries"]) == (3, 4), (
        "what is declared stays beside what was"
    )
    data = flow_json(drawn(RunState.PENDING, one=Mark(state=StepState.PENDING)))
    assert {node["name"]: node["state"] for node in data["nodes"]} == {
        "one": "PENDING",
        "undo_one": None,
        "two": None,
        "undo_two": None,
        "three": None,
    }


def test_what_was_not_reached_is_said_so() -> None:
    drawing = drawn(RunState.RUNNING, one=Mark(state=StepState.RUNNING, tries=1))
    read = Mermaid(flow_mermaid(drawing))
    said = {name: read.nodes[read.named(name)][1] for name in ("one", "undo_one", "two", "three")}
    assert said == {
        "one": "now: RUNNING, 1 try",
        "undo_one": "not called",
        "two": "not reached",
        "three": "not reached",
    }


@pytest.mark.parametrize("state", StepState)
def test_a_row_that_is_not_final_is_where_the_run_is(state: StepState) -> None:
    drawing = drawn(RunState.RUNNING, one=Mark(state=state))
    box = svg_boxes(flow_svg(drawing))["one"]
    here = state not in FINAL_STEP_STATES
    assert ("current" in (box.get("class") or "").split()) == here
    assert svg_words(box)[1] == ("now: " if here else "") + state.value


@pytest.mark.parametrize("state", RunState)
def test_only_a_run_that_succeeded_has_reached_the_end(state: RunState) -> None:
    words = Mermaid(flow_mermaid(drawn(state))).nodes["end_"]
    ended_well = state in {RunState.SUCCEEDED, RunState.PARTIALLY_SUCCEEDED}
    assert words == ["SUCCEEDED", "reached" if ended_well else "not reached"]
    text = flow_svg(drawn(state))
    assert f"order/o-1: {state.value}" in svg_words(svg_root(text))


@pytest.mark.parametrize(("tries", "words"), [(1, "WAITING"), (2, "WAITING, waited 2x")])
def test_a_wait_is_not_tried(tries: int, words: str) -> None:
    wait = Box(name="came", kind=StepKind.WAIT)
    marks = {"came": Mark(state=StepState.WAITING, tries=tries)}
    bare = Drawing(saga="s", version=1, title="s v1", flow=Group(parts=(wait,)))
    drawing = with_run(bare, Progress(reference="s/1", state=RunState.WAITING, marks=marks))
    assert Mermaid(flow_mermaid(drawing)).nodes["n_came"][1] == f"now: {words}"


def test_rows_that_the_definition_lacks_are_named() -> None:
    drawing = drawn(RunState.SUCCEEDED, former=Mark(state=StepState.SUCCEEDED))
    assert Mermaid(flow_mermaid(drawing)).nodes["others_"] == ["rows that the definition lacks", "former"]
    assert flow_json(drawing)["strangers"] == ["former"]
    assert "rows that the definition lacks: former." in " ".join(svg_words(svg_root(flow_svg(drawing))))


@pytest.mark.parametrize(
    "key",
    [
        "<script>\"&'",
        "]]>",
        "a\x01b\x7f\ufffe",
        "#quot;",
        "`*_bold_*`",
        "日本" * 90,
        "x" * 512,
        "a\nb",
        "$$x$$",
    ],
)
def test_a_key_is_whatever_the_user_made_of_it(key: str) -> None:
    drawing = drawn(RunState.SUCCEEDED, reference=f"order/{key}")
    read = Mermaid(flow_mermaid(drawing))
    assert read.nodes["start_"][1].replace("\N{WORD JOINER}", "") == " ".join(
        f"order/{key}: SUCCEEDED".split()
    )
    root = svg_root(flow_svg(drawing))
    assert float(root.get("width") or 0) < 1000
    assert not list(root.iter(f"{SVG}script"))
