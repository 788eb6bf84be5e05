"""Contracts: an event, command or reply as a JSON Schema file, so that nobody shares a class; pure.

One file per type and version, `shop.order-placed.v1.json`: JSON Schema 2020-12 of the body, and under `x-milepost` what
travels around it. What an owner writes (events, replies) is described as it is written; what it accepts (commands) as
it is read. A field with a default is optional in the file, so that it may be added to a released version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from .codecs import JSON
from .errors import DefinitionError, UsageError
from .events import Event

Kind: TypeAlias = Literal["event", "command", "reply"]
Mode: TypeAlias = Literal["validation", "serialization"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MARK = "x-milepost"
_FILE = re.compile(r"(?P<type>[a-z0-9][a-z0-9._-]*)\.v(?P<version>[1-9][0-9]{0,8})\.json")


@dataclass(frozen=True, slots=True)
class Contract:
    """What one side promises or expects of a type and version.

    Attributes:
        key: Field that is the record key; '' for none.
        correlation: Field that waits match on; '' for none.
        reply: Of a command, the name of its reply's contract; '' otherwise.
        codec: How the body becomes bytes; '' is plain JSON.
        schema: JSON Schema of the body.
    """

    kind: Kind
    type: str
    version: int
    topic: str
    key: str = ""
    correlation: str = ""
    reply: str = ""
    codec: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Type and version: "shop.order-placed.v1"."""
        return f"{self.type}.v{self.version}"

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}.json"


def name_of(event: type[Event]) -> str:
    """Return the name of a class's contract."""
    spec = event.milepost_spec
    return f"{spec.type}.v{spec.version}"


def contract_of(event: type[Event], kind: Kind, *, mode: Mode, reply: str = "") -> Contract:
    """Return the contract that a class declares.

    Args:
        mode: "serialization" for what is written, "validation" for what is read.
        reply: Of a command, the name of its reply's contract.

    Raises:
        DefinitionError: MP480 when a field has no JSON Schema.
    """
    spec = event.milepost_spec
    # The body is written under the names of its fields unless the class says otherwise, and read under their aliases.
    by_alias = mode == "validation" or bool(event.model_config.get("serialize_by_alias"))
    try:
        schema = event.model_json_schema(mode=mode, by_alias=by_alias)
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise DefinitionError(
            "MP480",
            f"event {event.__name__} has no JSON Schema, so it cannot be a contract: {error}. Give the field a type "
            "that JSON has, or the class a __get_pydantic_json_schema__.",
        ) from error
    codec = "" if spec.codec is JSON else spec.codec.name
    return Contract(
        kind, spec.type, spec.version, spec.topic, spec.key, spec.correlate, reply, codec, cast("Any", schema)
    )


def to_text(contract: Contract) -> str:
    """Return a contract as its file holds it."""
    mark = {
        "kind": contract.kind,
        "type": contract.type,
        "version": contract.version,
        "topic": contract.topic,
        "key": contract.key,
        "correlation": contract.correlation,
        "reply": contract.reply,
        "codec": contract.codec,
    }
    said = {name: value for name, value in mark.items() if value}
    document = {"$schema": _DIALECT, _MARK: said, **contract.schema}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def named(file: str) -> tuple[str, int] | None:
    """Return type and version that a file's name says; None for the name of another kind of file."""
    found = _FILE.fullmatch(file)
    return (found["type"], int(found["version"])) if found else None


def from_text(file: str, text: str) -> Contract:
    """Return the contract in a file.

    Args:
        file: The file's name.

    Raises:
        UsageError: MP481 when it is no contract, or another one than its name says.
    """
    try:
        document: Any = json.loads(text)
        mark = dict(document.pop(_MARK))
        document.pop("$schema", None)
        found = Contract(
            mark["kind"],
            mark["type"],
            mark["version"],
            mark["topic"],
            mark.get("key", ""),
            mark.get("correlation", ""),
            mark.get("reply", ""),
            mark.get("codec", ""),
            document,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(
            "MP481",
            f"{file} is no contract: {type(error).__name__}: {error}. Such a file is made by `milepost contracts "
            "export`; take other files out of this folder, or name them otherwise.",
        ) from None
    if found.file != file:
        raise UsageError("MP481", f"{file} holds the contract {found.name}. Name it {found.file}.")
    return found
