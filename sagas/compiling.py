"""From the declared nodes to a checked, frozen `Definition`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from ..schemas.errors import DefinitionError
from ..schemas.options import OnFailure, Repeat, Retry, Then
from ..schemas.states import Level, StepKind
from . import (
    approvals,
    budgets,
    checks,
    codec,
    each,
    fingerprints,
    inputs,
    locking,
    nodes,
    planting,
    priorities,
    shapes,
)
from .definition import Definition, Node
from .model import Json
from .specs import CommandSpec, UndoSpec, WaitSpec

if TYPE_CHECKING:
    from .saga import Saga


def compile_saga(saga: Saga[Any], flow: Sequence[nodes.Node[Any, Any]]) -> Definition:
    """Check and compile a saga.

    Raises:
        DefinitionError: The first of MP101 to MP105 and MP108 to MP116 that is found.
    """
    leaves = [leaf for node in flow for leaf in shapes.leaves(node)]
    checks.check_flow(saga, leaves)
    default: OnFailure = Then.COMPENSATE if any(_has_undo(node) for node in saga.nodes) else Then.FAIL
    compiled = tuple(_compile(saga, node, default) for node in leaves)
    planted = planting.plant(saga, flow, default)
    definition = Definition(
        name=saga.name,
        version=saga.version,
        input=saga.input,
        key=saga.key,
        queue=saga.queue,
        nodes=compiled,
        flow=planted.flow,
        controls=planted.controls,
        lock=saga.lock,
        if_locked=saga.if_locked,
        deadline=saga.deadline,
        active_timeout=saga.active_timeout,
        priority=saga.priority,
        auto_repair=saga.auto_repair,
        upcasts=inputs.chain(saga.title, saga.past.upcasts, saga.input),
        fingerprint=saga.fingerprint,
        revalidate=saga.revalidation,
        budget=saga.budget,
        severity=saga.severity,
    )
    checks.check_definition_rules(definition)
    locking.check(definition)
    priorities.check(definition)
    fingerprints.check(definition)
    budgets.check(definition)
    outline = {"shape": _shape(definition), "policy": _policy(definition)}
    shape, policy = (codec.digest(outline[part]).hex() for part in ("shape", "policy"))
    return replace(definition, shape=shape, policy=policy, outline=outline)


def _has_undo(node: nodes.Node[Any, Any]) -> bool:
    return isinstance(node, nodes.Step) and node.undo_node is not None


def _compile(saga: Saga[Any], node: nodes.Node[Any, Any], default: Any) -> Node:
    if isinstance(node, nodes.Wait):
        return _compile_wait(saga, node)
    if isinstance(node, nodes.Timer):
        return _compile_timer(saga, node)
    if isinstance(node, approvals.Approval):
        return approvals.compiled(saga, node)
    assert isinstance(node, nodes.Step)
    queue = node.queue or saga.queue
    undo = node.undo_node
    return Node(
        name=node.name,
        kind=node.kind,
        repeat=node.repeat,
        window=node.window,
        retry=node.retry,
        attempt_timeout=node.attempt_timeout,
        on_failure=node.on_failure or default,
        queue=queue,
        result=node.result,
        fn=node.fn,
        probe=node.probe_spec,
        undo=None
        if undo is None
        else UndoSpec(
            name=undo.name,
            fn=undo.fn,
            retry=undo.retry,
            blind=undo.blind,
            attempt_timeout=node.attempt_timeout,
            queue=queue,
            risk=undo.risk,
            detached=undo.detached,
        ),
        no_undo=node.no_undo,
        irreversible=node.irreversible,
        limits=node.limits,
        budget=node.budget,
        command=_command(node),
        child=node.child if isinstance(node, nodes.ChildStep) else None,
        each=node.each if isinstance(node, each.EachStep) else None,
    )


def _command(node: nodes.Step[Any, Any]) -> CommandSpec | None:
    if not isinstance(node, nodes.CommandStep):
        return None
    return CommandSpec(send=node.send, reply=node.reply, timeout=node.timeout)


def _compile_timer(saga: Saga[Any], node: nodes.Timer[Any]) -> Node:
    return Node(
        name=node.name,
        kind=StepKind.TIMER,
        repeat=Repeat.SAFE,
        retry=Retry(),
        attempt_timeout=checks.PROBE_TIMEOUT,
        on_failure=Then.PERSON,
        queue=saga.queue,
        result=None,
        due=node.due,
    )


def _compile_wait(saga: Saga[Any], node: nodes.Wait[Any, Any]) -> Node:
    return Node(
        name=node.name,
        kind=StepKind.WAIT,
        repeat=Repeat.SAFE,
        retry=Retry(),
        attempt_timeout=checks.PROBE_TIMEOUT,
        # A probe's Failed cannot be foreseen by the order checks, so no machine may undo on its word.
        on_failure=Then.PERSON,
        queue=saga.queue,
        result=node.event,
        probe=node.probe_spec,
        wait=WaitSpec(
            event=node.event,
            match=node.match,
            timeout=node.timeout,
            on_timeout=node.on_timeout,
            broadcast=node.broadcast,
        ),
    )


def _shape(definition: Definition) -> Json:
    _schema(definition, "input", definition.input)
    nested = planting.pinned(definition.flow)
    return ({} if nested is None else {"flow": nested}) | {
        "input": _schema(definition, "input", definition.oldest_input),
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind.value,
                "result": _schema(definition, node.name, node.result),
                "undo": node.undo.name if node.undo else None,
                "event": _event(node),
            }
            for node in definition.nodes
        ],
    }


def _event(node: Node) -> Json:
    if node.child is not None:
        return {"child": node.child.saga.name}
    if node.each is not None:
        return {"each": node.each.saga.name}
    if node.command is not None:
        return {"reply": node.command.reply.milepost_spec.type}
    if node.wait is None:
        return None
    spec = node.wait.event.milepost_spec
    return {"type": spec.type, "correlate": spec.correlate}


def _schema(definition: Definition, name: str, model: type[BaseModel] | None) -> Json:
    try:
        schema = codec.shape_of(model)
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError) as error:
        raise DefinitionError(
            "MP107",
            f"{definition.title}, {name}: {model and model.__name__} cannot be stored as JSON ({error}). "
            "Use fields that JSON can hold.",
        ) from error
    if codec.has_secret(schema):
        raise DefinitionError(
            "MP115",
            f"{definition.title}, {name}: {model and model.__name__} has a secret field, which would be stored as "
            "asterisks. Store a reference to the secret instead.",
        )
    return schema


def _policy(definition: Definition) -> Json:
    nodes: list[Json] = [_policy_of(node) for node in (*definition.nodes, *definition.controls)]
    if definition.lock is not None:
        nodes.append({"if_locked": definition.if_locked})
    if definition.deadline is not None or definition.active_timeout is not None:
        active = definition.active_timeout
        seconds = None if active is None else active.total_seconds()
        nodes.append({"deadline": definition.deadline is not None, "active_timeout": seconds})
    nodes.extend([*priorities.policy(definition), *budgets.policy(definition)])
    if definition.auto_repair is not Level.SAFE_RETRY:
        nodes.append({"auto_repair": int(definition.auto_repair)})
    return nodes


def _policy_of(node: Node) -> Json:
    return (
        {
            "name": node.name,
            "repeat": node.repeat.value,
            "retry": _retry(node.retry),
            "attempt_timeout": node.attempt_timeout.total_seconds(),
            "on_failure": node.on_failure.value,
            "queue": node.queue,
            "no_undo": node.no_undo is not None,
            "irreversible": node.irreversible,
            "probe": None
            if node.probe is None
            else [node.probe.settle.total_seconds(), node.probe.give_up.total_seconds()],
            "undo": None if node.undo is None else [_retry(node.undo.retry), node.undo.blind],
            "wait": None
            if node.wait is None
            else [node.wait.timeout.total_seconds(), node.wait.on_timeout.value, node.wait.broadcast],
        }
        | ({"limits": list(node.limits)} if node.limits else {})
        | ({"window": node.window.total_seconds()} if node.window is not None else {})
        | _policy_of_time(node)
        | approvals.policy(node)
        | each.policy(node)
    )


def _policy_of_time(node: Node) -> dict[str, Json]:
    """What timers and commands add; nothing for others, whose fingerprints stay as they are."""
    found: dict[str, Json] = {}
    if node.due is not None:
        found["due"] = node.due.total_seconds() if isinstance(node.due, timedelta) else "function"
    if node.command is not None:
        found["timeout"] = node.command.timeout.total_seconds()
    return found


def _retry(retry: Retry) -> Json:
    return [
        retry.attempts,
        retry.first.total_seconds(),
        retry.factor,
        retry.cap.total_seconds(),
        None if retry.within is None else retry.within.total_seconds(),
    ]
