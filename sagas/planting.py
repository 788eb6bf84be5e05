"""From nested shapes to the tree of a definition, and what of it is pinned on a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from ..schemas.options import OnFailure, Repeat, Retry, Then
from ..schemas.states import StepKind
from . import nodes, tree
from .definition import Node
from .model import Json
from .shapes import MOST_ROUNDS, Shape

if TYPE_CHECKING:
    from .saga import Saga


class Taken(BaseModel):
    """What the row of a `when` keeps: which way was taken."""

    then: bool


class Round(BaseModel):
    """What the row of a `loop` keeps of a round.

    Attributes:
        done: The loop ends with it.
        because: The step whose quality failure ended the round, if one did.
    """

    done: bool
    because: str | None = None


@dataclass
class _Planting:
    saga: Saga[Any]
    default: OnFailure
    counts: dict[str, int] = field(default_factory=dict)
    controls: list[Node] = field(default_factory=list)

    def series(self, parts: Sequence[nodes.Node[Any, Any]]) -> tree.Series:
        return tree.Series(tuple(self.part(part) for part in parts))

    def part(self, node: nodes.Node[Any, Any]) -> tree.Part:
        if not isinstance(node, Shape):
            return tree.Leaf(node.name)
        self._check(node)
        if node.kind == "sequence":
            return self.series(node.parts)
        if node.kind == "when":
            return self._choice(node)
        if node.kind == "loop":
            return self._loop(node)
        return self._parallel(node)

    def _parallel(self, node: Shape[Any]) -> tree.Part:
        branches = tuple(self.part(part) for part in node.parts)
        need = {"all_of": len(branches), "at_least": node.count}.get(node.kind, 0)
        title = f"at least {need} of" if node.kind == "at_least" else node.kind.replace("_", " ")
        return tree.Parallel(branches, need, early=node.kind == "at_least", title=title)

    def _choice(self, node: Shape[Any]) -> tree.Part:
        assert node.test is not None
        name = self._named(node, StepKind.CHOICE, Taken)
        return tree.Choice(name, node.test, self.series(node.parts), self.series(node.otherwise))

    def _loop(self, node: Shape[Any]) -> tree.Part:
        assert node.test is not None
        name = self._named(node, StepKind.LOOP, Round)
        return tree.Loop(name, self.series(node.parts), node.test, node.count)

    def _named(self, node: Shape[Any], kind: StepKind, result: type[BaseModel]) -> str:
        self.counts[node.kind] = number = self.counts.get(node.kind, 0) + 1
        name = node.given_name or f"{node.kind}_{number}"
        self.saga.take_name(name, f"{node.kind} {name}")
        self.controls.append(
            Node(
                name=name,
                kind=kind,
                repeat=Repeat.SAFE,
                retry=Retry(),
                attempt_timeout=timedelta(seconds=1),
                on_failure=node.on_failure or (self.default if kind is StepKind.LOOP else Then.PERSON),
                queue=self.saga.queue,
                result=result,
            )
        )
        return name

    def _check(self, node: Shape[Any]) -> None:
        title = self.saga.title
        if not node.parts and not (node.kind == "when" and node.otherwise):
            raise DefinitionError(
                "MP131", f"{title}: {node.kind}() holds no step or wait. Put at least one in it."
            )
        if node.kind == "at_least" and not 1 <= node.count <= len(node.parts):
            raise DefinitionError(
                "MP132",
                f"{title}: at_least({node.count}, ...) of {len(node.parts)} branches: the number must be from 1 to "
                "that of the branches.",
            )
        if node.kind == "loop" and not 1 <= node.count <= MOST_ROUNDS:
            raise DefinitionError(
                "MP133",
                f"{title}: loop(at_most={node.count}) must be from 1 to {MOST_ROUNDS}: every round leaves rows. For "
                "many items start a run for each.",
            )
        if node.kind in {"when", "loop"} and not callable(node.test):
            option = "until" if node.kind == "loop" else "test"
            raise DefinitionError(
                "MP134",
                f"{title}: {node.kind}({option}={node.test!r}) is no function of the run. Pass a lambda.",
            )


@dataclass(frozen=True, slots=True)
class Planted:
    """The tree of a flow, and what the rows of its choices and loops are read with."""

    flow: tree.Series
    controls: tuple[Node, ...]


def plant(saga: Saga[Any], flow: Sequence[nodes.Node[Any, Any]], default: OnFailure) -> Planted:
    """Make the tree of a flow.

    Args:
        default: What follows the failure of a loop that does not say.

    Raises:
        DefinitionError: MP110, MP114 for a name, MP131 to MP134 for a shape that makes no sense.
    """
    planting = _Planting(saga, default)
    return Planted(planting.series(flow), tuple(planting.controls))


def pinned(flow: tree.Series) -> Json:
    """Return what a fingerprint of the shape has to hold of a flow; None for nodes in order, whose list says it all."""
    if all(isinstance(part, tree.Leaf) for part in flow.parts):
        return None
    return [_pinned(part) for part in flow.parts]


def _pinned(part: tree.Part) -> Json:
    match part:
        case tree.Leaf(name=name):
            return name
        case tree.Series(parts=parts):
            return [_pinned(one) for one in parts]
        case tree.Parallel(branches=branches, need=need, early=early):
            return {"beside": [_pinned(one) for one in branches], "need": need, "early": early}
        case tree.Choice(name=name, then=then, otherwise=otherwise):
            return {"choice": name, "then": _pinned(then), "otherwise": _pinned(otherwise)}
        case tree.Loop(name=name, body=body, at_most=at_most):
            return {"loop": name, "body": _pinned(body), "at_most": at_most}
