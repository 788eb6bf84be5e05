"""What only trying a lambda can find: which results it reads before they can be there."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..schemas.errors import DefinitionError
from ..schemas.states import RunState
from . import nodes, tree
from .context import View, never_before, reads_later
from .definition import Definition
from .model import Run

if TYPE_CHECKING:
    from .saga import Saga


def check_definition(saga: Saga[Any]) -> list[DefinitionError]:
    """Try each pure lambda of a saga as far as it runs, and return what it reads too early (MP104).

    A lambda is given stand-ins for the results that it reads; where it cannot go on with one, what it had read until
    then counts.
    """
    definition = saga.definition
    findings = []
    for name, fn in _lambdas(definition):
        trial = _Trial(definition, name)
        with suppress(Exception):  # a stand-in cannot please every lambda
            fn(trial)
        findings += [reads_later(definition, name, read) for read in trial.too_early()]
    return findings


def _lambdas(definition: Definition) -> list[tuple[str, tree.Pure]]:
    """Return every pure function that reads results, with the name of the node that it belongs to."""
    found: list[tuple[str, tree.Pure]] = [
        (node.name, node.wait.match) for node in definition.nodes if node.wait is not None
    ]
    for node in definition.nodes:
        if node.command is not None:
            found.append((node.name, node.command.send))
        elif node.child is not None:
            found.append((node.name, node.child.input))
        elif node.due is not None and not isinstance(node.due, timedelta):
            found.append((node.name, node.due))
    found += [
        (node.name, node.approval.params)
        for node in definition.nodes
        if node.approval is not None and node.approval.params is not None
    ]
    for part in tree.parts(definition.flow):
        if isinstance(part, tree.Choice):
            found.append((part.name, part.test))
        elif isinstance(part, tree.Loop):
            found.append((part.name, part.until))
    return found


class _StandIn:
    """Answers every question with itself."""

    def __getattr__(self, name: str) -> _StandIn:
        return self

    def __getitem__(self, key: object) -> _StandIn:
        return self

    def __call__(self, *args: object, **options: object) -> _StandIn:
        return self

    def __str__(self) -> str:
        return "stand-in"


class _Trial(View[Any]):
    """A view that remembers which results were read."""

    def __init__(self, definition: Definition, reader: str) -> None:
        nobody = Run(
            id=UUID(int=0),
            tenant="",
            saga=definition.name,
            key="check",
            definition=definition.version,
            input=None,
            state=RunState.PENDING,
            correlation_id="",
        )
        super().__init__(definition, nobody, reader=reader)
        self._read: dict[str, None] = {}

    @property
    def input(self) -> Any:
        return _StandIn()

    def result(self, node: nodes.Node[Any, Any], /, *, default: Any = None) -> Any:
        self._read[node.name] = None
        return _StandIn()

    def too_early(self) -> list[str]:
        return [name for name in self._read if never_before(self._definition, self._reader, name)]
