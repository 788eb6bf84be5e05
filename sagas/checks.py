"""What makes a definition wrong, found when the user's module is imported; trying.py finds what only a try can tell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from ..schemas.errors import DefinitionError
from ..schemas.events import Event, check_upcasters
from ..schemas.options import OnFailure, OnTimeout, Repeat, Retry, Then
from ..schemas.states import StepKind
from . import approvals, each, nodes, timing, tree
from .definition import Definition, Node
from .specs import CommandSpec

if TYPE_CHECKING:
    from .saga import Saga

#: Longest duration that a definition may name.
LONGEST = timedelta(days=3650)
#: Longest name of a command, in characters: with a round it has to fit the header of schemas/exchange.py.
LONGEST_COMMAND = 150
#: Longest time of one call of a wait's probe.
PROBE_TIMEOUT = timedelta(seconds=30)


def check_flow(saga: Saga[Any], flow: Sequence[nodes.Node[Any, Any]]) -> None:
    """Check that the flow holds each declared node of this saga once.

    Raises:
        DefinitionError: MP105, MP110, MP111 or MP112.
    """
    if not flow:
        raise DefinitionError("MP111", f"{saga.title}: flow(...) is empty. Name its steps in order.")
    seen: set[str] = set()
    for node in flow:
        if not isinstance(node, nodes.Step | nodes.Wait | nodes.Timer | approvals.Approval):
            raise DefinitionError(
                "MP112",
                f"{saga.title}: flow(...) was given {node!r}, which is no step or wait. Pass what "
                f"@{saga.name}.step and {saga.name}.wait returned, or all_of(...), when(...) and so on of that.",
            )
        if node.saga is not saga:
            raise DefinitionError(
                "MP112",
                f"{saga.title}: {node.name} in flow(...) belongs to {node.saga.title}. Declare it on {saga.name}.",
            )
        if node.name in seen:
            raise DefinitionError(
                "MP110", f"{saga.title}: {node.name} is twice in flow(...). A node runs once; keep one."
            )
        seen.add(node.name)
    for node in saga.nodes:
        if node.name not in seen:
            kind = type(node).__name__.lower()
            raise DefinitionError(
                "MP105",
                f"{saga.title}: {kind} {node.name} is defined but not in {saga.name}.flow(...). Add it, or delete it.",
            )


def check_definition_rules(definition: Definition) -> None:
    """Check the rules that hold between nodes, and the bounds of every option.

    Raises:
        DefinitionError: MP101 to MP103, MP108, MP109, MP113, MP116 or MP145.
    """
    timing.check(definition, LONGEST)
    for node in definition.nodes:
        if node.wait is not None:
            _check_wait(definition, node)
        elif node.approval is not None:
            approvals.check(definition, node, LONGEST)
        elif node.due is None:
            _check_step(definition, node)
        _check_bounds(definition, node)
    for node in definition.controls:
        _check_step(definition, node)
    if any(node.undo is not None for node in definition.nodes):
        _check_undos(definition)
    _check_irreversible(definition)


def _check_step(definition: Definition, node: Node) -> None:
    _check_forward(definition, node)
    _check_window(definition, node)
    place = f"{definition.title}, step {node.name}"
    if node.on_failure not in get_args(OnFailure):
        raise DefinitionError(
            "MP113", f"{place}: on_failure={node.on_failure} is none of COMPENSATE, FAIL, PERSON and RETRY."
        )
    if node.repeat is Repeat.ASK_FIRST and node.probe is None:
        raise DefinitionError(
            "MP101",
            f"{place}: repeat=ASK_FIRST needs a probe, or a lost reply can never be settled. "
            f"Add @{node.name}.probe, or say repeat=Repeat.NEVER to send such cases to a person.",
        )
    if node.probe is not None and (node.repeat is Repeat.NEVER or node.kind is StepKind.TX):
        why = "commits with its checkpoint" if node.kind is StepKind.TX else "says repeat=NEVER"
        raise DefinitionError(
            "MP116",
            f"{place} {why}, so its probe would never be asked. Delete the probe"
            + (", or say repeat=Repeat.ASK_FIRST." if node.kind is StepKind.STEP else "."),
        )


def _check_window(definition: Definition, node: Node) -> None:
    if node.window is None:
        return
    place = f"{definition.title}, step {node.name}"
    if node.repeat is not Repeat.SAFE:
        raise DefinitionError(
            "MP145",
            f"{place}: window= says how long the other side dedupes on the key, and repeat={node.repeat.name} says "
            "that it does not. Leave window out, or say repeat=Repeat.SAFE.",
        )
    if not node.attempt_timeout < node.window <= LONGEST:
        raise DefinitionError(
            "MP145",
            f"{place}: window={node.window} must be longer than attempt_timeout={node.attempt_timeout}, and at most "
            f"{LONGEST.days} days. Say how long the other side remembers a key, such as timedelta(hours=24).",
        )


def _check_forward(definition: Definition, node: Node) -> None:
    if node.on_failure is Then.RETRY and node.kind not in {StepKind.STEP, StepKind.TX}:
        raise DefinitionError(
            "MP138",
            f"{definition.title}, {node.name}: on_failure=Then.RETRY tries a step without end, and this is a "
            f"{node.kind.value.lower()}. Say Then.PERSON, COMPENSATE or FAIL.",
        )


def _check_wait(definition: Definition, node: Node) -> None:
    wait = node.wait
    assert wait is not None
    place = f"{definition.title}, wait {node.name}"
    if not wait.event.milepost_spec.correlate:
        raise DefinitionError(
            "MP108",
            f"{place}: event {wait.event.__name__} declares no correlate=, so no event can be told to belong to a run. "
            f'Declare it: class {wait.event.__name__}(Event, ..., correlate="field").',
        )
    check_stored(place, wait.event)
    if wait.on_timeout is Then.RECONCILE and node.probe is None:
        raise DefinitionError(
            "MP109",
            f"{place}: on_timeout=RECONCILE needs a probe to ask. "
            f"Add @{node.name}.probe, or say on_timeout=Then.PERSON.",
        )
    if wait.on_timeout is not Then.RECONCILE and node.probe is not None:
        raise DefinitionError(
            "MP116",
            f"{place}: its probe is only asked with on_timeout=RECONCILE, but it says {wait.on_timeout.name}. "
            "Delete the probe, or say on_timeout=Then.RECONCILE.",
        )
    if wait.on_timeout not in get_args(OnTimeout):
        raise DefinitionError(
            "MP113", f"{place}: on_timeout={wait.on_timeout} ends no wait. Say COMPENSATE or CANCEL."
        )


def check_stored(place: str, event: type[Event]) -> None:
    """Refuse an event whose body a run would store although its class encrypts it, or cannot bring up to date.

    Args:
        place: For the error, such as "order v1, wait delivered".

    Raises:
        DefinitionError: MP348 or MP344.
    """
    check_upcasters(event)
    if event.milepost_spec.codec.secret:
        raise DefinitionError(
            "MP348",
            f"{place}: {event.__name__} is encrypted, and what ends a wait is stored readable with the run. Wait for "
            "an event without secrets, and let a step fetch what it needs.",
        )


def _check_undos(definition: Definition) -> None:
    for node in definition.nodes:
        covered = node.undo is not None or node.no_undo is not None or node.irreversible
        if node.acts and not covered and _may_leave_behind(definition, node):
            raise DefinitionError(
                "MP102",
                f"{definition.title}, step {node.name}: later steps can fail, and {node.name} has no undo. "
                f'Add @{node.name}.undo, or no_undo="why nothing needs undoing", or irreversible=True.',
            )


def _check_irreversible(definition: Definition) -> None:
    for node in definition.nodes:
        if not node.irreversible:
            continue
        for other in _may_leave_behind(definition, node):
            option = "on_failure" if other.wait is None else "on_timeout"
            then = "PERSON" if other.approval is None else "FAIL"
            option = option if other.approval is None else "on_reject"
            stands = tree.relation(definition.flow, other.name, node.name) if other is not node else "round"
            where = {"beside": "beside", "round": "in a loop with"}.get(stands, "after")
            raise DefinitionError(
                "MP103",
                f"{definition.title}: {node.name} is irreversible, but {other.name} {where} it would compensate. "
                f"Move {node.name} later, or give {other.name} {option}=Then.{then}.",
            )


def _may_leave_behind(definition: Definition, node: Node) -> list[Node]:
    """Return the nodes whose failure makes the run undo what this one has done."""
    flow = definition.flow
    found = []
    for other in (*definition.nodes, *definition.controls):
        if not other.compensates or tree.tolerated(flow, other.name):
            continue
        if other is node:
            again = any(isinstance(part, tree.Loop) for part in tree.way_to(flow, node.name))
        else:
            again = tree.relation(flow, other.name, node.name) in {"after", "beside", "round"}
        found += [other] if again else []
    return found


def _check_bounds(definition: Definition, node: Node) -> None:
    place = f"{definition.title}, {node.name}"
    if node.no_undo is not None and not node.no_undo.strip():
        raise DefinitionError("MP113", f"{place}: no_undo is empty. Say why nothing needs undoing.")
    if node.undo is not None and (node.no_undo is not None or node.irreversible):
        raise DefinitionError(
            "MP113", f"{place}: it has an undo and says that it needs or has none. Keep one of the two."
        )
    _check_retry(place, node.retry)
    _check_duration(place, "attempt_timeout", node.attempt_timeout)
    if node.undo is not None:
        _check_retry(f"{place}, undo {node.undo.name}", node.undo.retry)
    if node.wait is not None:
        _check_duration(place, "timeout", node.wait.timeout)
    if isinstance(node.due, timedelta):
        _check_duration(place, "due", node.due)
    if node.command is not None:
        _check_command(place, node, node.command)
    each.check(place, node)
    if node.probe is not None:
        _check_duration(place, "give_up", node.probe.give_up)
        if not timedelta(0) <= node.probe.settle < node.probe.give_up:
            raise DefinitionError(
                "MP113",
                f"{place}: settle={node.probe.settle} must be shorter than give_up={node.probe.give_up}.",
            )


def _check_command(place: str, node: Node, command: CommandSpec) -> None:
    _check_duration(place, "timeout", command.timeout)
    check_stored(place, command.reply)
    if len(node.name) > LONGEST_COMMAND:
        raise DefinitionError(
            "MP140",
            f"{place}: the name of a command travels in a header, with its round, and has at most {LONGEST_COMMAND} "
            "characters. Give it a shorter one.",
        )


def _check_duration(place: str, option: str, value: timedelta) -> None:
    if not timedelta(0) < value <= LONGEST:
        raise DefinitionError(
            "MP113", f"{place}: {option}={value} must be longer than zero and at most ten years."
        )


def _check_retry(place: str, retry: Retry) -> None:
    problem = (
        f"attempts={retry.attempts} must be 1 or more; 1 means no second try"
        if retry.attempts < 1
        else f"first={retry.first} must not be negative"
        if retry.first < timedelta(0)
        else f"factor={retry.factor} must be from 1 to 100"
        if not 1 <= retry.factor <= 100
        else f"cap={retry.cap} must be at least first={retry.first} and at most ten years"
        if not retry.first <= retry.cap <= LONGEST
        else f"within={retry.within} must be longer than zero and at most ten years, or None"
        if retry.within is not None and not timedelta(0) < retry.within <= LONGEST
        else ""
    )
    if problem:
        raise DefinitionError("MP113", f"{place}: retry {problem}.")
