"""From a definition, and a run of it, to the drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from ..schemas.options import Then
from ..schemas.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    HELD_STEP_STATES,
    WELL_ENDED,
    RunState,
    StepKind,
    StepState,
)
from . import timing, tree
from .definition import Definition, Node
from .drawing import Box, Drawing, Group, Mark, Part, Progress, Tone, boxes_of
from .model import Json
from .specs import ApprovalSpec, UndoSpec

_TONES: Final[Mapping[str, Tone]] = {
    "SUCCEEDED": "done",
    "PARTIALLY_SUCCEEDED": "done",
    "FAILED": "failed",
    "UNKNOWN": "doubt",
    "RECONCILING": "doubt",
    "MANUAL_REQUIRED": "person",
    "COMPENSATION_FAILED": "person",
    "COMPENSATION_PENDING": "undone",
    "COMPENSATING": "undone",
    "COMPENSATED": "undone",
    "SKIPPED": "over",
    "CANCELLED": "over",
    "EXPIRED": "failed",
}


#: What is neither over nor in trouble.
_LIVE: Final = frozenset(s.value for s in (*RunState, *StepState)) - {
    s.value for s in (*FINAL_RUN_STATES, *FINAL_STEP_STATES)
}


def draw(definition: Definition, run: Progress | None = None) -> Drawing:
    """Draw a definition, and a run on top of it.

    Args:
        definition: That of the run.
        run: Where a run of it stands.
    """
    usual = Then.COMPENSATE if any(node.undo for node in definition.nodes) else Then.FAIL
    boxes = {node.name: _box(node, definition.queue, usual) for node in definition.nodes}
    flow = _group(definition.flow, boxes)
    assert isinstance(flow, Group)
    drawing = Drawing(
        saga=definition.name,
        version=definition.version,
        title=definition.title,
        limits=_limits(definition),
        flow=flow,
        kept=tuple(node.name for node in definition.controls),
    )
    return drawing if run is None else with_run(drawing, run)


def _limits(definition: Definition) -> str:
    """Say how long a run may take, and whether it has something for itself."""
    rest = "refused" if definition.if_locked == "reject" else "in a queue"
    lock = "" if definition.lock is None else f"one run at a time for each lock, the rest {rest}"
    return ", ".join(words for words in (timing.words(definition), lock) if words)


def with_run(drawing: Drawing, run: Progress) -> Drawing:
    """Return a drawing with a run on top of it."""
    flow = _marked(drawing.flow, run)
    assert isinstance(flow, Group)
    known = {box.name for box in boxes_of(flow)}
    reached = run.state in WELL_ENDED
    ends = replace(
        drawing.ends, tone="done" if reached else "ahead", status=("reached" if reached else "not reached",)
    )
    strangers = tuple(name for name in run.marks if name not in known and name not in drawing.kept)
    return replace(drawing, flow=flow, run=run, ends=ends, strangers=strangers)


def _group(part: tree.Part, boxes: Mapping[str, Box]) -> Part:
    """Draw a part of the flow."""
    match part:
        case tree.Leaf(name=name):
            return boxes[name]
        case tree.Series(parts=parts):
            return Group(parts=tuple(_group(one, boxes) for one in parts))
        case tree.Parallel(branches=branches, title=title):
            return Group(shape="parallel", title=title, parts=tuple(_group(one, boxes) for one in branches))
        case tree.Choice(name=name, then=then, otherwise=otherwise):
            ways = (_group(then, boxes), _group(otherwise, boxes))
            return Group(shape="choice", title=name, parts=ways, labels=("yes", "otherwise"))
        case tree.Loop(name=name, body=body, at_most=at_most):
            title = f"{name}: at most {at_most} round{'' if at_most == 1 else 's'}"
            return Group(shape="loop", title=title, parts=(_group(body, boxes),))


# --- from a definition ------------------------------------------------------------------------------


def _box(node: Node, queue: str, usual: Then) -> Box:
    """Draw a node; what is as everywhere in its saga is left out."""
    undo = None if node.undo is None else _undo_box(node.undo, node.name)
    facts = _waiting_facts(node, usual) or _step_facts(node, queue, usual)
    facts = facts if node.approval is None else _approval_facts(node.approval)
    return Box(name=node.name, kind=node.kind, facts=facts, undo=undo, data=_data(node))


def _waiting_facts(node: Node, usual: Then) -> tuple[str, ...]:
    """Say what a node waits for that holds no worker; () for others."""
    if node.wait is not None:
        return _wait_facts(node)
    if node.due is not None:
        return (length(node.due) if isinstance(node.due, timedelta) else "until an instant",)
    if node.command is not None:
        facts = [
            node.repeat.name,
            f"replied with {node.command.reply.milepost_spec.type}",
            f"sent up to {node.retry.attempts}x, {length(node.command.timeout)} each",
        ]
        facts += ["probe"] if node.probe is not None else []
        facts += ["irreversible"] if node.irreversible else []
        facts += [f"on failure {node.on_failure.name}"] if node.on_failure is not usual else []
        return tuple(facts)
    return ()


def _wait_facts(node: Node) -> tuple[str, ...]:
    assert node.wait is not None
    facts = [
        f"waits for {node.wait.event.milepost_spec.type}",
        f"{length(node.wait.timeout)}, then {node.wait.on_timeout.name}",
    ]
    facts += ["probe"] if node.probe is not None else []
    facts += ["broadcast"] if node.wait.broadcast else []
    return tuple(facts)


def _approval_facts(spec: ApprovalSpec) -> tuple[str, ...]:
    persons = f" by {spec.quorum} persons" if spec.quorum > 1 else ""
    return (
        f"approval{persons} of {', '.join(sorted(spec.roles))}",
        f"risk {spec.risk.value}",
        f"{length(spec.expires)}, then {spec.on_expiry.name}",
        f"rejected: {spec.on_reject.name}",
    )


def _step_facts(node: Node, queue: str, usual: Then) -> tuple[str, ...]:
    facts = [_how(node)]
    facts += ["probe"] if node.probe is not None else []
    facts += ["irreversible"] if node.irreversible else []
    facts.append(_tries(node.retry.attempts, node.attempt_timeout))
    facts += [f"queue {node.queue}"] if node.queue != queue else []
    facts += [f"on failure {node.on_failure.name}"] if node.on_failure is not usual else []
    return tuple(facts)


def _how(node: Node) -> str:
    if node.child is not None:
        return f"run of {node.child.saga.name}"
    if node.each is not None:
        enough = "" if node.each.min_success == 1.0 else f", {node.each.min_success:.0%} have to succeed"
        return f"runs of {node.each.saga.name}, {node.each.concurrency} at once{enough}"
    return "TX" if node.kind is StepKind.TX else node.repeat.name


def _undo_box(undo: UndoSpec, of: str) -> Box:
    facts = [_tries(undo.retry.attempts, undo.attempt_timeout)] + (["blind"] if undo.blind else [])
    facts += [f"risk {undo.risk.value}"] if undo.risk.approvals else []
    facts += ["detached"] if undo.detached else []
    data = {
        "name": undo.name,
        "kind": StepKind.UNDO.value,
        "undo_of": of,
        "blind": undo.blind,
        "risk": undo.risk.value,
        "detached": undo.detached,
        "queue": undo.queue,
        "attempts": undo.retry.attempts,
        "attempt_timeout_s": undo.attempt_timeout.total_seconds(),
    }
    return Box(name=undo.name, kind=StepKind.UNDO, facts=tuple(facts), data=data)


def _data(node: Node) -> Mapping[str, Json]:
    described: dict[str, Json] = {"name": node.name, "kind": node.kind.value}
    if node.wait is not None:
        return described | {
            "event": node.wait.event.milepost_spec.type,
            "timeout_s": node.wait.timeout.total_seconds(),
            "on_timeout": node.wait.on_timeout.name,
            "broadcast": node.wait.broadcast,
            "probe": node.probe is not None,
        }
    if node.approval is not None:
        spec = node.approval
        return described | {
            "roles": sorted(spec.roles),
            "risk": spec.risk.value,
            "quorum": spec.quorum,
            "expires_s": spec.expires.total_seconds(),
            "on_expiry": spec.on_expiry.name,
            "on_reject": spec.on_reject.name,
        }
    return described | {
        "repeat": node.repeat.name,
        "on_failure": node.on_failure.name,
        "queue": node.queue,
        "attempts": node.retry.attempts,
        "attempt_timeout_s": node.attempt_timeout.total_seconds(),
        "probe": node.probe is not None,
        "irreversible": node.irreversible,
        "no_undo": node.no_undo,
    }


def _tries(attempts: int, timeout: timedelta) -> str:
    return f"{attempts} {'try' if attempts == 1 else 'tries'} of {length(timeout)}"


_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60))


def length(span: timedelta) -> str:
    """Write a duration exactly, in its units: 3d, 1h 30m, 15s, 1.5s, 0.2s."""
    left, words = span.total_seconds(), []
    for unit, seconds in _UNITS:
        amount, left = divmod(left, seconds)
        words += [f"{amount:.0f}{unit}"] if amount else []
    words += [f"{round(left, 6):g}s"] if left or not words else []
    return " ".join(words)


# --- a run on top of it -----------------------------------------------------------------------------


def _marked(part: Part, run: Progress) -> Part:
    if isinstance(part, Group):
        return replace(part, parts=tuple(_marked(inner, run) for inner in part.parts))
    undo = None if part.undo is None else _with_mark(part.undo, run.marks.get(part.undo.name))
    box = _with_mark(part, run.marks.get(part.name))
    if undo is not None and _is(run.marks.get(undo.name), StepState.COMPENSATED):
        box = replace(box, tone="undone", status=(*box.status, "undone"))
    return replace(box, undo=undo)


def _is(mark: Mark | None, state: StepState) -> bool:
    return mark is not None and mark.state is state


def _with_mark(box: Box, mark: Mark | None) -> Box:
    if mark is None:
        word = "not called" if box.kind is StepKind.UNDO else "not reached"
        return replace(box, tone="ahead", status=(word,))
    words = [mark.state.value + (f" #{mark.iteration}" if mark.iteration else "")]
    words += ["outcome in doubt"] if mark.doubt and mark.state is StepState.FAILED else []
    words += _tried(box.kind, mark.tries)
    words += [f"probed {mark.probes}x"] if mark.probes else []
    words += _code(mark)
    return replace(
        box,
        tone=_TONES.get(mark.state.value, "over" if mark.state in FINAL_STEP_STATES else "live"),
        status=tuple(words),
        current=mark.state not in FINAL_STEP_STATES,
    )


def _tried(kind: StepKind, tries: int) -> list[str]:
    if kind is StepKind.APPROVAL:
        return []
    if kind is StepKind.WAIT:
        return [f"waited {tries}x"] if tries > 1 else []
    return [f"{tries} {'try' if tries == 1 else 'tries'}"] if tries else []


def _code(mark: Mark) -> list[str]:
    if mark.code is None or mark.state in {StepState.SUCCEEDED, StepState.COMPENSATED}:
        return []
    return [f"last try: {mark.code}" if mark.state in HELD_STEP_STATES else mark.code]


def run_tone(state: RunState) -> Tone:
    """Return the tone of a run's state."""
    return tone_of(state)


def tone_of(state: str) -> Tone:
    """Return the tone of a state of a run or a step; of what is neither, "over"."""
    return _TONES.get(state, "live" if state in _LIVE else "over")
