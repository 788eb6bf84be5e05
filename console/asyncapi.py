"""The AsyncAPI document of an application, made by FastStream's own generator.

Milepost reads with consumers of its own, so the broker here is only described, never connected: one subscriber for each
handled event, one publisher for each class that this service writes. FastStream lays out channels, operations and
messages; bodies are those of the contracts, because what is written and what is read differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faststream.kafka import KafkaBroker
from faststream.specification import AsyncAPI

from ..schemas.commands import Command
from ..schemas.contracts import Contract, name_of
from ..schemas.contracts_check import Side
from ..schemas.errors import UsageError
from ..schemas.events import Event
from .application import load_app
from .contract_classes import contract_on, sides
from .findings import counted
from .options import Globals

if TYPE_CHECKING:
    from ..consumers.app import Milepost

#: Where a message's correlation id is.
_CORRELATION = "$message.header#/ce_correlationid"


def write_document(given: Globals, *, out: Path, also: Sequence[str], release: str) -> None:
    """Write the document of the application.

    Args:
        out: File; "-" is standard output.
        release: Version of the application.

    Raises:
        UsageError: MP484 when the file cannot be written.
    """
    document = document_of(load_app(given), also=also, release=release)
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if str(out) == "-":
        given.out.line(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "MP484", f"{out} cannot be written: {error}. Name another file with --out."
        ) from error
    given.out.item(file=str(out), channels=len(document["channels"]), messages=len(document["operations"]))
    given.out.say(f"{out}: {counted(len(document['channels']), 'channel')}")


def document_of(service: Milepost, *, also: Sequence[str] = (), release: str = "0.1.0") -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of an application."""
    broker = KafkaBroker(os.environ.get("MILEPOST_KAFKA", "localhost:9092"))
    bodies: dict[str, Contract] = {}
    for side, event in sides(service, also):
        if side in {"publishes", "sends", "replies"}:
            contract = contract_on(side, event)
            bodies[contract.name] = contract
            broker.publisher(
                event.milepost_spec.topic, title=contract.name, description=_words(event), schema=event
            )
    for group, event in _reads(service):
        reading: Side = "answers" if issubclass(event, Command) else "consumes"
        title = f"{group}.{name_of(event)}"
        bodies[title] = contract_on(reading, event)
        described = broker.subscriber(
            event.milepost_spec.topic, group_id=group, title=title, description=_words(event)
        )
        described(_handler(event))
    made: Any = AsyncAPI(broker, title=service.name, version=release, schema_version="3.0.0")
    document: dict[str, Any] = json.loads(made.to_specification().to_json())
    return _with_bodies(document, bodies)


def _words(event: type[Event]) -> str | None:
    # A class without words of its own would show those of Event.
    return event.__doc__ if event.__doc__ and event.__doc__ != Event.__doc__ else None


def _reads(service: Milepost) -> Iterator[tuple[str, type[Event]]]:
    from ..consumers.signals import signal_consumer

    for consumer in [*service.consumers.values(), signal_consumer(service)]:
        for event in consumer.events:
            yield consumer.name, event


def _handler(event: type[Event]) -> Callable[[Any], Awaitable[None]]:
    async def take(message: Any) -> None:
        """Stand for a consumer's handler in the description; it is never called."""

    take.__annotations__ = {"message": event, "return": None}
    return take


def _with_bodies(document: dict[str, Any], bodies: dict[str, Contract]) -> dict[str, Any]:
    """Put the contracts' schemas into the document, each with its definitions inside."""
    components = document.setdefault("components", {})
    renamed = {name: name.replace(":", ".") for name in components.get("messages", {})}
    messages = {renamed[name]: message for name, message in components.get("messages", {}).items()}
    components["messages"], components["schemas"] = messages, {}
    for title, contract in bodies.items():
        place = f"#/components/schemas/{title}"
        components["schemas"][title] = _moved(dict(contract.schema), place)
    for name, message in messages.items():
        title = name.rpartition(".")[0]
        message["name"], message["correlationId"] = bodies[title].type, {"location": _CORRELATION}
        message["payload"] = {"$ref": f"#/components/schemas/{title}"}
    for channel in document["channels"].values():
        for message in channel["messages"].values():
            head, _, name = message["$ref"].rpartition("/")
            message["$ref"] = f"{head}/{renamed[name]}"
    return document


def _moved(schema: Any, place: str) -> Any:
    """Return a schema whose references to its own definitions begin at `place`."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _moved(rule, place) for name, rule in schema.items()}
    found.pop("discriminator", None)  # an object in OpenAPI, a name in AsyncAPI; oneOf says the same
    ref = found.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/"):
        found["$ref"] = place + ref[1:]
    return found
