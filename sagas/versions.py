"""What a saga says about its own past: how older inputs are read, and how runs of older versions may move to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from . import inputs
from .definition import Definition

if TYPE_CHECKING:
    from .nodes import Node
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741
J = TypeVar("J", bound=BaseModel)
M = TypeVar("M", bound=BaseModel)
N = TypeVar("N", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Migration:
    """How runs of an older version may move to this one.

    Attributes:
        input: From the old input to the new one.
        steps: Names: old step or wait to new.
    """

    old: Definition
    input: Callable[[Any], BaseModel]
    steps: Mapping[str, str]


@dataclass
class Past:
    """What was declared about older inputs and versions.

    Attributes:
        upcasts: In the order of declaration; `inputs.chain` checks and orders them.
        migrations: By old version.
    """

    upcasts: list[inputs.InputUpcast] = field(default_factory=list)
    migrations: dict[int, Migration] = field(default_factory=dict)


class Versioned(Generic[I]):
    """The part of `Saga` that is about its versions: its name, what was compiled, and its past."""

    name: str
    version: int
    past: Past
    _definition: Definition | None

    @property
    def title(self) -> str:
        """Name and version for people: "order v1"."""
        return f"{self.name} v{self.version}"

    @property
    def definition(self) -> Definition:
        """The compiled definition.

        Raises:
            DefinitionError: MP111 before `flow` was called.
        """
        if self._definition is None:
            raise DefinitionError(
                "MP111",
                f"{self.title}: flow(...) was never called, so its steps have no order. End the module with "
                f"{self.name}.flow(...).",
            )
        return self._definition

    def open_for(self, what: str) -> None:
        """Refuse a declaration after `flow`.

        Raises:
            DefinitionError: MP111.
        """
        if self._definition is not None:
            raise DefinitionError(
                "MP111",
                f"{self.title}: {what} comes after flow(...), which had already put everything in order. "
                "Call flow once, at the end.",
            )

    def upcast_input(self, *, from_version: int) -> Callable[[Callable[[M], N]], Callable[[M], N]]:
        """Say how a stored input of an older version becomes one of the next, so that its runs go on under this code.

        ::

            @order.upcast_input(from_version=1)
            def with_currency(old: PlaceOrderV1) -> PlaceOrder:
                return PlaceOrder(**old.model_dump(), currency="EUR")

        Runs say which version of the input they were started with. Several form a chain, 1 to 2 to 3; the saga's own
        input class is the last version. The saga's shape keeps the oldest class, so that changing the input in this way
        needs no new version of the saga.

        Args:
            from_version: The version that the function takes, from 1.

        Raises:
            DefinitionError: MP119 for a function without annotations, or (from `flow`) for a chain with a gap; MP111
                after `flow`.
        """

        def register(fn: Callable[[M], N]) -> Callable[[M], N]:
            self.open_for(f"upcast_input(from_version={from_version})")
            self.past.upcasts.append(inputs.declared(self.title, fn, from_version))
            return fn

        return register

    def migrate(
        self, old: Saga[J], /, *, input: Callable[[J], I], steps: Mapping[Node[J, Any], Node[I, Any]]
    ) -> None:
        """Say how open runs of an older version may move to this one; `milepost runs migrate` then moves them.

        Declaring it moves nothing by itself: runs finish on the version that they were started with. A run can move
        while no step of it is under way and it goes forward, when every step that it has come to is in `steps`.

        Args:
            old: The older version; both have called `flow`.
            input: Pure function from the old input to the new one; the business key must stay the same.
            steps: For each step or wait of the old version that a run may have come to, its place in this one.

        Raises:
            DefinitionError: MP121 for another saga, a newer version, a step that is not of the two flows or of another
                kind, or two steps with one place.
        """
        new, before = self.definition, old.definition
        names = {mine.name: theirs.name for mine, theirs in steps.items()}
        problem = _problem(before, new, names)
        if not problem and before.version in self.past.migrations:
            problem = "it is declared twice. Keep one"
        if problem:
            raise DefinitionError("MP121", f"{new.title}.migrate({before.title}): {problem}.")
        self.past.migrations[before.version] = Migration(before, input, names)


def _problem(old: Definition, new: Definition, names: Mapping[str, str]) -> str:
    """Say what is wrong with a map, or ''."""
    if old.name != new.name or old.version >= new.version:
        return f"runs move from an older version of the same saga, and {old.title} is none"
    twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if twice:
        return f"two steps cannot both become {twice[0]}. Leave one out: runs that have come to it stay where they are"
    for mine, theirs in names.items():
        before, after = old.node(mine), new.node(theirs)
        if before is None or after is None:
            missing, where = (mine, old) if before is None else (theirs, new)
            return f"{missing} is not in the flow of {where.title}. It has: {where.flow_text}"
        if before.kind is not after.kind:
            return f"{mine} is a {before.kind.value} and {theirs} a {after.kind.value}; a step keeps its kind"
        if before.wait is not None and after.wait is not None:
            was, now = before.wait.event.milepost_spec, after.wait.event.milepost_spec
            if (was.type, was.correlate) != (now.type, now.correlate):
                return f"{mine} waits for {was.type} by {was.correlate}, {theirs} for {now.type} by {now.correlate}"
    return ""
