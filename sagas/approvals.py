"""Declaring an approval: `saga.approval(…)`, what it may say, and what it is compiled to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel

from ..schemas.decision import Decision
from ..schemas.errors import DefinitionError
from ..schemas.options import OnReject, OnTimeout, Repeat, Retry, Then
from ..schemas.states import Risk, StepKind
from . import nodes
from .context import View
from .definition import Definition, Node
from .model import Json
from .specs import ApprovalSpec, check_risk

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741

#: Most persons that an approval may need: each leaves an entry in its row.
MOST_PERSONS = 20


class Approval(nodes.Node[I, Decision]):
    """A question to persons; holds no worker."""

    def __init__(self, saga: Saga[I], name: str, spec: ApprovalSpec) -> None:
        super().__init__(saga, name)
        self.spec = spec


def declare(
    saga: Saga[I],
    name: str,
    *,
    roles: Collection[str],
    risk: Risk,
    quorum: int,
    expires: timedelta,
    on_expiry: OnTimeout,
    on_reject: OnReject,
    params: Callable[[View[I]], BaseModel] | None,
) -> Approval[I]:
    """Add an approval to its saga.

    Raises:
        DefinitionError: MP110, MP111, MP114, MP135, MP137.
    """
    what = f"approval {name}"
    saga.open_for(what)
    check_risk(f"{saga.title}, {what}", risk)
    if isinstance(roles, str) or not all(isinstance(role, str) and role.strip() for role in roles):
        raise DefinitionError(
            "MP135",
            f"{saga.title}, {what}: roles={roles!r} must be a set of names, such as frozenset({{'finance'}}).",
        )
    spec = ApprovalSpec(
        roles=frozenset(roles),
        risk=risk,
        quorum=quorum,
        expires=expires,
        on_expiry=on_expiry,
        on_reject=on_reject,
        params=params,
    )
    approval: Approval[I] = Approval(saga, name, spec)
    saga.take_name(name, what)
    saga.nodes.append(approval)
    return approval


def compiled(saga: Saga[Any], node: Approval[Any]) -> Node:
    """Return an approval as data."""
    return Node(
        name=node.name,
        kind=StepKind.APPROVAL,
        repeat=Repeat.SAFE,
        retry=Retry(),
        attempt_timeout=timedelta(seconds=1),
        on_failure=Then.PERSON,
        queue=saga.queue,
        result=Decision,
        approval=node.spec,
    )


def check(definition: Definition, node: Node, longest: timedelta) -> None:
    """Refuse an approval that nobody could give, or that says nothing.

    Raises:
        DefinitionError: MP135 or MP136.
    """
    spec = node.approval
    assert spec is not None
    place = f"{definition.title}, approval {node.name}"
    if not spec.roles:
        raise DefinitionError("MP135", f"{place}: roles is empty. Name at least one role that may approve.")
    if not 1 <= spec.quorum <= MOST_PERSONS:
        raise DefinitionError(
            "MP135", f"{place}: quorum={spec.quorum} must be from 1 to {MOST_PERSONS} persons."
        )
    if not timedelta(0) < spec.expires <= longest:
        raise DefinitionError(
            "MP135", f"{place}: expires={spec.expires} must be longer than zero and at most ten years."
        )
    if spec.on_reject not in get_args(OnReject):
        raise DefinitionError(
            "MP136",
            f"{place}: on_reject={spec.on_reject} is none of Then.COMPENSATE, Then.FAIL and Then.CONTINUE.",
        )
    if spec.on_expiry not in get_args(OnTimeout) or spec.on_expiry is Then.RECONCILE:
        raise DefinitionError(
            "MP136",
            f"{place}: on_expiry={spec.on_expiry} makes no sense, for only persons can say. There are Then.PERSON, "
            "RETRY (asked once more), CANCEL, COMPENSATE and CONTINUE.",
        )


def policy(node: Node) -> dict[str, Json]:
    """Return what the policy fingerprint holds of approvals; nothing where there are none."""
    found: dict[str, Json] = {}
    if node.undo is not None and (node.undo.risk is not Risk.LOW or node.undo.detached):
        found["undo_risk"] = [node.undo.risk.value, node.undo.detached]
    spec = node.approval
    if spec is not None:
        found["approval"] = [
            *(sorted(spec.roles), spec.risk.value, spec.quorum),
            *(spec.expires.total_seconds(), spec.on_expiry.value, spec.on_reject.value),
        ]
    return found
