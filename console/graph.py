"""`milepost graph SAGA`: a saga, or the states of the machine that runs it, as Mermaid text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..schemas.errors import UsageError
from .application import definitions, load_app
from .options import Globals

if TYPE_CHECKING:
    from ..consumers.app import Milepost
    from ..sagas.definition import Definition


def draw_flow(given: Globals, name: str | None) -> None:
    """Print a saga as a flowchart: the way forward, the waits, the undos.

    Args:
        name: "order", which means its newest version, or "order/1"; None for the only one there is.

    Raises:
        UsageError: MP601 without a name where there are several, naming them.
    """
    from ..sagas.graph import flow_json, flow_mermaid

    service = load_app(given)
    definition = find(service, name if name is not None else only(service))
    given.out.item(**flow_json(definition))
    if not given.out.as_json:
        given.out.line(flow_mermaid(definition).rstrip())


def draw_states(given: Globals) -> None:
    """Print the states that every run and step may take, and who may cause each change."""
    from ..sagas.graph import states_mermaid
    from ..sagas.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS

    given.out.item(run=_arrows(RUN_TRANSITIONS.items()), step=_arrows(STEP_TRANSITIONS.items()))
    if not given.out.as_json:
        given.out.line(states_mermaid().rstrip())


def only(service: Milepost) -> str:
    """Return the name of the only saga of a service.

    Raises:
        UsageError: MP601 where there are several, naming them; MP613 where there are none.
    """
    names = sorted({definition.name for definition in definitions(service)})
    if not names:
        raise UsageError("MP613", f"service {service.name} has no sagas, so there is nothing to draw.")
    if len(names) > 1:
        raise UsageError("MP601", f"graph draws one saga. Say which: {', '.join(names)}.")
    return names[0]


def find(service: Milepost, name: str) -> Definition:
    """Return a definition by "order" (the newest version) or "order/1".

    Raises:
        UsageError: MP613 when the service has none.
    """
    known = definitions(service)
    for definition in reversed(known):
        if name in {definition.name, definition.id}:
            return definition
    there = ", ".join(definition.id for definition in known) or "none"
    raise UsageError("MP613", f"service {service.name} has no saga {name!r}. It has: {there}.")


def _arrows(table: Iterable[tuple[tuple[str | None, str], Iterable[str]]]) -> list[dict[str, object]]:
    return [{"from": before, "to": after, "causes": sorted(causes)} for (before, after), causes in table]
