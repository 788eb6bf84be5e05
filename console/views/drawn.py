"""A run drawn on its definition as processes have written it down, so that the drawing needs no application.

What is drawn from a definition itself (`milepost graph`) says more of each box; which boxes there are, and what leads
where, is the same, since the shape is what a run is pinned to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ...sagas.drawing import Box, Drawing, Group, Mark, Part, Progress
from ...sagas.drawing_plan import length, with_run
from ...sagas.drawing_svg import flow_svg
from ...schemas.states import StepKind
from ..model import Plan, RunDetail, situation
from ..output import span


def run_svg(run: RunDetail, outline: str | None) -> str | None:
    """Draw a run as marks without a style of their own; None where no process has written its definition down.

    Args:
        run: With its steps.
        outline: Its definition, as milepost.definition holds it.
    """
    if outline is None:
        return None
    drawing = with_run(from_outline(run.saga, run.definition, json.loads(outline)), _progress(run))
    return flow_svg(drawing, styled=False)


def nodes_of(outline: str | None) -> list[str]:
    """Return the names of a definition's nodes in order; none where it is not known."""
    return [] if outline is None else [node["name"] for node in json.loads(outline)["shape"]["nodes"]]


def from_outline(saga: str, version: int, outline: Mapping[str, Any]) -> Drawing:
    """Draw a definition as it was written down.

    Args:
        outline: {"shape": …, "policy": …}, what the two fingerprints are of.
    """
    shape = outline["shape"]
    policies = {one["name"]: one for one in outline["policy"] if "name" in one}
    boxes = {node["name"]: _box(node, policies.get(node["name"], {})) for node in shape["nodes"]}
    kept: list[str] = []
    flow = shape.get("flow") or list(boxes)
    return Drawing(
        saga=saga,
        version=version,
        title=f"{saga} v{version}",
        flow=Group(parts=tuple(_part(one, boxes, kept) for one in flow)),
        kept=tuple(kept),
    )


def _part(part: Any, boxes: Mapping[str, Box], kept: list[str]) -> Part:
    if isinstance(part, str):
        return boxes[part]
    if isinstance(part, list):
        return Group(parts=tuple(_part(one, boxes, kept) for one in part))
    if "beside" in part:
        branches = tuple(_part(one, boxes, kept) for one in part["beside"])
        need = part["need"]
        title = "all of" if need == len(branches) else f"at least {need} of" if need else "optional"
        return Group(shape="parallel", title=title, parts=branches)
    if "choice" in part:
        kept.append(part["choice"])
        ways = (_part(part["then"], boxes, kept), _part(part["otherwise"], boxes, kept))
        return Group(shape="choice", title=part["choice"], parts=ways, labels=("yes", "otherwise"))
    kept.append(part["loop"])
    rounds = f"at most {part['at_most']} round{'' if part['at_most'] == 1 else 's'}"
    return Group(shape="loop", title=f"{part['loop']}: {rounds}", parts=(_part(part["body"], boxes, kept),))


def _box(node: Mapping[str, Any], policy: Mapping[str, Any]) -> Box:
    kind = StepKind(node["kind"])
    undo = None
    if node["undo"]:
        tries = policy.get("undo")
        facts = (f"{tries[0][0]} tries",) if tries else ()
        undo = Box(name=node["undo"], kind=StepKind.UNDO, facts=facts, data={"undo_of": node["name"]})
    return Box(name=node["name"], kind=kind, facts=_facts(kind, node, policy), undo=undo)


def _facts(kind: StepKind, node: Mapping[str, Any], policy: Mapping[str, Any]) -> tuple[str, ...]:
    event = node["event"] or {}
    if kind is StepKind.WAIT and policy.get("wait"):
        seconds, then, _ = policy["wait"]
        return (
            f"waits for {event['type']}",
            f"{length(timedelta(seconds=seconds))}, then {str(then).upper()}",
        )
    if kind is StepKind.TIMER:
        due = policy.get("due")
        return (length(timedelta(seconds=due)) if isinstance(due, int | float) else "until an instant",)
    if kind in {StepKind.CHILD, StepKind.EACH}:
        return (f"run of {event['child']}",) if "child" in event else (f"runs of {event['each']}",)
    if kind is StepKind.APPROVAL or not policy:
        return ("approval",) if kind is StepKind.APPROVAL else ()
    facts = ["TX" if kind is StepKind.TX else str(policy["repeat"]).upper()]
    facts += ["probe"] if policy["probe"] else []
    facts += ["irreversible"] if policy["irreversible"] else []
    tries = policy["retry"][0]
    limit = length(timedelta(seconds=policy["attempt_timeout"]))
    return (*facts, f"{tries} {'try' if tries == 1 else 'tries'} of {limit}")


def _progress(run: RunDetail) -> Progress:
    """Return where a run stands, as drawings take it; of a step with several rounds the youngest counts."""
    marks = {
        step.name: Mark(
            state=step.state,
            tries=step.attempt,
            probes=step.probes,
            code=step.code,
            doubt=step.doubt,
            iteration=step.iteration,
        )
        for step in run.steps
    }
    return Progress(reference=run.run, state=run.state, situation=situation(run, Plan(), span), marks=marks)
