"""What puts nodes together in `flow`: side by side, one way or another, again and again; each may hold the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from ..schemas.options import OnFailure
from .context import View
from .nodes import Node

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741

Kind: TypeAlias = Literal["sequence", "all_of", "best_effort", "at_least", "optional", "when", "loop"]

#: Most rounds that a loop may be allowed: every round leaves rows, and a run is loaded whole.
MOST_ROUNDS = 1000


class Shape(Node[I, None]):
    """Nodes put together; made by the functions of this module.

    Attributes:
        kind: Name of the function that made it.
        parts: In order; of `when` those of the first way.
        otherwise: Of `when`, those of the other way.
    """

    def __init__(
        self,
        kind: Kind,
        parts: Sequence[Node[I, Any]],
        *,
        otherwise: Sequence[Node[I, Any]] = (),
        test: Callable[[View[I]], bool] | None = None,
        count: int = 0,
        name: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        self.kind = kind
        self.parts = tuple(parts)
        self.otherwise = tuple(otherwise)
        self.test = test
        self.count = count
        self.given_name = name
        self.on_failure = on_failure
        self.name = name or kind

    def __repr__(self) -> str:
        return f"<{self.kind} of {', '.join(repr(part) for part in (*self.parts, *self.otherwise))}>"

    @property
    def saga(self) -> Saga[I]:
        """The saga of the nodes in it.

        Raises:
            DefinitionError: MP131 when there are none.
        """
        for node in leaves(self):
            return node.saga
        raise DefinitionError("MP131", f"{self.kind}() holds no step or wait. Put at least one in it.")


def leaves(node: Node[I, Any]) -> Iterator[Node[I, Any]]:
    """Yield the steps and waits in a node, in order."""
    if not isinstance(node, Shape):
        yield node
        return
    for part in (*node.parts, *node.otherwise):
        yield from leaves(part)


def sequence(*nodes: Node[I, Any]) -> Node[I, None]:
    """Put nodes in order where one node is asked for, such as a branch of `all_of`."""
    return Shape("sequence", nodes)


def all_of(*nodes: Node[I, Any]) -> Node[I, None]:
    """Run branches side by side; it is over when all have succeeded.

    When one fails for good the run stops: what runs may finish, what nobody has begun is cancelled.
    """
    return Shape("all_of", nodes)


def best_effort(*nodes: Node[I, Any]) -> Node[I, None]:
    """Run branches side by side; it is over when all are, whatever became of them.

    What a failed branch had done stays done, and is undone only with the run.
    """
    return Shape("best_effort", nodes)


def at_least(n: int, *nodes: Node[I, Any]) -> Node[I, None]:
    """Run branches side by side until `n` have succeeded.

    Then the others are given up at the next safe boundary: what runs may finish, what nobody has begun is cancelled.
    The run stops as soon as `n` cannot be reached any more.

    Args:
        n: From 1 to the number of branches.
        nodes: The branches.
    """
    return Shape("at_least", nodes, count=n)


def optional(node: Node[I, Any]) -> Node[I, None]:
    """Run a node whose failure does not stop the run; read its result with a `default`."""
    return Shape("optional", (node,))


def when(
    test: Callable[[View[I]], bool],
    *then: Node[I, Any],
    otherwise: Sequence[Node[I, Any]] = (),
    name: str | None = None,
) -> Node[I, None]:
    """Go one way or another.

    Args:
        test: Pure function of input and results so far; asked once, and the answer is kept with the run.
        then: What runs when it says True.
        otherwise: What runs when it says False.
        name: Of the row that keeps the answer; "when_1" and so on by default.
    """
    return Shape("when", then, otherwise=tuple(otherwise), test=test, name=name)


def loop(
    *body: Node[I, Any],
    until: Callable[[View[I]], bool],
    at_most: int,
    on_failure: OnFailure | None = None,
    name: str | None = None,
) -> Node[I, None]:
    """Run nodes again and again.

    Each round has rows and operation keys of its own (`{run}:{step}#{round}`); `result(node)` is the latest round's.

    Args:
        body: What runs in each round, in order.
        until: Pure function, asked after each round; True ends the loop.
        at_most: Most rounds, from 1 to 1000.
        on_failure: What follows when the last round ends without True; as of a step.
        name: Of the rows that keep the answers; "loop_1" and so on by default.
    """
    return Shape("loop", body, test=until, count=at_most, name=name, on_failure=on_failure)
