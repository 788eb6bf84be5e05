"""From what a test names (a step, a wait, an undo) to the definition and the row that it stands for."""

from __future__ import annotations

from typing import Any

from ..consumers.app import Milepost
from ..sagas.approvals import Approval
from ..sagas.context import RunRef
from ..sagas.definition import Definition
from ..sagas.nodes import Node, Undo, Wait
from ..schemas.errors import UsageError
from .faults import Place


def place_of(service: Milepost, step: Node[Any, Any] | Undo[Any], call: str) -> Place:
    """Return where a fault is to be planned.

    Args:
        call: Name of the kit's method, for the error.

    Raises:
        UsageError: MP350 when it is none of the service's, MP352 for a wait, which is never called.
    """
    if isinstance(step, Wait | Approval):
        raise UsageError(
            "MP352",
            f"kit.{call}({step.name}): a wait or an approval is never called, so nothing of it can fail. Deliver its "
            "event late with kit.advance and kit.deliver, or never; of an approval, kit.reject it or let it expire.",
        )
    for definition in service.definitions:
        if _belongs(definition, step):
            return definition.id, step.name
    raise _stranger(step, f"kit.{call}", f"service {service.name}")


def row_name(service: Milepost, run: RunRef, step: Node[Any, Any] | Undo[Any]) -> str:
    """Return the name of the row of a run.

    Raises:
        UsageError: MP350 when the run's saga has no such step, wait or undo.
    """
    for definition in service.definitions:
        if definition.name == run.saga and _belongs(definition, step):
            return step.name
    raise _stranger(step, "kit", f"saga {run.saga}")


def _belongs(definition: Definition, step: Node[Any, Any] | Undo[Any]) -> bool:
    if isinstance(step, Node):
        return step.saga.definition is definition
    undone = definition.undone_by(step.name)
    return undone is not None and undone.undo is not None and undone.undo.fn is step.fn


def _stranger(step: Node[Any, Any] | Undo[Any], call: str, home: str) -> UsageError:
    return UsageError(
        "MP350",
        f"{call}: {step!r} is no step, wait or undo of {home}. Pass one of its own, from the same module.",
    )
