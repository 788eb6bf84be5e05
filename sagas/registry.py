"""The definitions that a process knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..schemas.errors import DefinitionError
from ..schemas.states import Priority, Risk
from .definition import Definition
from .model import Run
from .priorities import possible
from .saga import Saga


def _critical(definition: Definition) -> bool:
    undos = (node.undo.risk for node in definition.nodes if node.undo is not None)
    approvals = (node.approval.risk for node in definition.nodes if node.approval is not None)
    return Risk.CRITICAL in {definition.severity, *undos, *approvals}


class Definitions:
    """Compiled definitions by name and version.

    Args:
        sagas: Sagas whose `flow` has been called; several versions of one name may stand side by side.

    Attributes:
        critical: Whether any of them has a severity or risk for which a second person is needed.

    Raises:
        DefinitionError: MP110 when two have the same name and version, MP111 when one has no flow,
            MP141 when the saga of a child, or of items, is missing.
    """

    def __init__(self, sagas: Sequence[Saga[Any]]) -> None:
        self._known: dict[tuple[str, int], Definition] = {}
        for saga in sagas:
            definition = saga.definition
            if (saga.name, saga.version) in self._known:
                raise DefinitionError(
                    "MP110",
                    f"{saga.title} is given twice to this service. List it once; a changed saga needs its own version.",
                )
            self._known[saga.name, saga.version] = definition
        for definition in self:
            self._check_children(definition)
        self.critical = any(_critical(definition) for definition in self)

    def _check_children(self, definition: Definition) -> None:
        for node in definition.nodes:
            started = node.child or node.each
            if started is None:
                continue
            child = started.definition
            if self.get(child.name, child.version) is not child:
                raise DefinitionError(
                    "MP141",
                    f"{definition.title}, {node.name}: {child.title} is not one of this service's sagas, so its runs "
                    "could not be started. Add it to Milepost(..., sagas=[...]).",
                )

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, saga: str, version: int) -> Definition | None:
        """Return the definition, or None when this process does not know it."""
        return self._known.get((saga, version))

    def of(self, run: Run) -> Definition | None:
        """Return the definition that a run is pinned to, or None when this process cannot decide about it.

        A version whose shape was edited since the run began is another definition, and so is one that reads older
        inputs only.
        """
        found = self.get(run.saga, run.definition)
        if (
            found is None
            or (run.shape and run.shape != found.shape)
            or run.input_version > found.input_version
        ):
            return None
        return found

    @property
    def pins(self) -> list[str]:
        """All that runs may be pinned to for this process to decide about them: "order/1#<shape>@<input version>"."""
        return sorted(
            f"{definition.id}#{definition.shape}@{version}"
            for definition in self
            for version in range(1, definition.input_version + 1)
        )

    @property
    def ids(self) -> list[str]:
        """What a worker registers: "order/1", sorted."""
        return sorted(definition.id for definition in self)

    def priorities(self, queue: str) -> list[Priority]:
        """Return the priorities that work of a queue can have, the highest first; NORMAL is always among them."""
        using = (d for d in self if any(node.queue == queue for node in d.nodes))
        found = {Priority.NORMAL, *(p for definition in using for p in possible(definition))}
        return [priority for priority in Priority if priority in found]

    @property
    def queues(self) -> list[str]:
        """Every queue that some step, probe or undo of these definitions uses, sorted."""
        return sorted({node.queue for definition in self for node in definition.nodes})
