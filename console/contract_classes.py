"""Which contracts an application has, and on which side of each it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..schemas.commands import Command, reply_of
from ..schemas.contracts import Contract, Kind, Mode, contract_of, name_of
from ..schemas.contracts_check import Side
from ..schemas.errors import StartError, UsageError
from ..schemas.events import Event

if TYPE_CHECKING:
    from ..consumers.app import Milepost

#: Sides that own what they stand on: they release it.
OWNERS: frozenset[Side] = frozenset({"publishes", "answers", "replies"})


def loaded(base: type[Event] = Event) -> Iterator[type[Event]]:
    """Yield every event class that was declared in this process."""
    for kind in base.__subclasses__():
        made = kind.__pydantic_generic_metadata__
        if not (made["args"] or made["parameters"]):
            yield kind
        yield from loaded(kind)


def sides(service: Milepost, also: Iterable[str] = ()) -> list[tuple[Side, type[Event]]]:
    """Return the event classes of an application, each with its side.

    A class that a consumer handles, a saga awaits or a sent command is replied with is consumed; a command that no
    consumer answers is sent. Every other event class that is loaded is published.

    Args:
        also: Types that are published although this service handles them itself.

    Raises:
        UsageError: MP482 when `also` names a type that no class has.
    """
    from ..consumers.signals import awaited

    answering = [one for consumer in service.consumers.values() for one in consumer.answering]
    answered = {one.command for one in answering}
    replies = {one.reply for one in answering}
    every = list(dict.fromkeys(loaded()))
    sent = [kind for kind in every if issubclass(kind, Command) and kind not in answered]
    handled = {kind for consumer in service.consumers.values() for kind in consumer.events} - answered
    consumed = handled | set(awaited(service)) | {reply_of(kind) for kind in sent}
    published = set(also)
    unknown = sorted(published - {kind.milepost_spec.type for kind in every})
    if unknown:
        known = ", ".join(sorted({kind.milepost_spec.type for kind in every})) or "none"
        raise UsageError(
            "MP482", f"--also {', '.join(unknown)}: no event class has this type. Known: {known}."
        )
    found: list[tuple[Side, type[Event]]] = []
    for kind in sorted(every, key=name_of):
        if issubclass(kind, Command):
            found.append(("answers" if kind in answered else "sends", kind))
            continue
        if kind in replies:
            found.append(("replies", kind))
        elif kind not in consumed or kind.milepost_spec.type in published:
            found.append(("publishes", kind))
        else:
            found.append(("consumes", kind))
    return found


def contract_on(side: Side, event: type[Event]) -> Contract:
    """Return a class's contract as its side has it: what is written, or what is read.

    Raises:
        DefinitionError: MP480 when a field has no JSON Schema.
    """
    if issubclass(event, Command):
        command: type[Command[Any]] = event
        mode: Mode = "validation" if side == "answers" else "serialization"
        return contract_of(event, "command", mode=mode, reply=name_of(reply_of(command)))
    kind: Kind = "reply" if side == "replies" else "event"
    return contract_of(event, kind, mode="validation" if side == "consumes" else "serialization")


def contracts_of(service: Milepost, also: Iterable[str] = ()) -> list[tuple[Side, Contract]]:
    """Return the application's contracts with their sides.

    Raises:
        StartError: MP483 when two classes that this service owns declare one type and version differently.
    """
    found: list[tuple[Side, Contract]] = []
    owned: dict[str, Contract] = {}
    for side, event in sides(service, also):
        contract = contract_on(side, event)
        if side in OWNERS:
            known = owned.setdefault(contract.name, contract)
            if _promise(known) != _promise(contract):
                raise StartError(
                    "MP483",
                    f"{contract.name} is declared by two classes that differ, and this service publishes both. Keep "
                    "one of them, or give the newer one the next version.",
                )
            if known is not contract:
                continue
        found.append((side, contract))
    return found


def _promise(contract: Contract) -> tuple[object, ...]:
    said = {name: rule for name, rule in contract.schema.items() if name not in {"title", "description"}}
    return (
        contract.kind,
        contract.topic,
        contract.key,
        contract.correlation,
        contract.reply,
        contract.codec,
        said,
    )
