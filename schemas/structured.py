"""CloudEvents in structured mode: one JSON object that holds attributes and data.

Source: JSON event format 1.0.2, https://github.com/cloudevents/spec (cloudevents/formats/json-format.md)
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import lru_cache
from typing import Any, Literal

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9.!#$&^_-]+\+)?json", re.IGNORECASE)


class BadStructure(Exception):
    """The bytes are no structured event; the message says why."""


@lru_cache(maxsize=256)
def is_json(content_type: str) -> bool:
    """Tell whether a media type is JSON; parameters make no difference, and none at all is JSON."""
    essence = content_type.partition(";")[0].strip()
    return not essence or _JSON_TYPE.fullmatch(essence) is not None


def read_structured(value: bytes) -> tuple[dict[str, str], bytes]:
    """Split a structured event.

    Returns:
        Attributes as text (numbers and booleans as the binary mode would write them), and the bytes of the data:
        numbers are as they were written, digit by digit; data that is missing is null.

    Raises:
        BadStructure: It is no JSON object, or what it says about its data cannot be.
    """
    try:
        text = value.decode(json.detect_encoding(value))
        members = _members(text)
    except (ValueError, IndexError, RecursionError) as error:
        # ValueError: no JSON, no Unicode, or an integer of more digits than Python converts.
        raise BadStructure(f"the structured event is no JSON object: {error}") from error
    attributes = {
        name: attribute
        for name, (found, _) in members.items()
        if name not in {"data", "data_base64"} and (attribute := _attribute(found)) is not None
    }
    try:
        return attributes, _data(members, attributes.get("datacontenttype", ""))
    except (binascii.Error, ValueError) as error:
        raise BadStructure(f"the structured event's data cannot be read: {error}") from error


def _data(members: dict[str, tuple[Any, str]], content_type: str) -> bytes:
    if "data_base64" in members:
        if "data" in members:
            raise BadStructure("the structured event has data and data_base64, and may have one of them")
        coded, _ = members["data_base64"]
        if not isinstance(coded, str):
            raise BadStructure("the structured event's data_base64 is no text")
        return base64.b64decode(coded, validate=True)
    data, written = members.get("data", (None, "null"))
    if isinstance(data, str) and not is_json(content_type):
        return data.encode()
    return written.encode()


def _attribute(found: object) -> str | None:
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, int) else None


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """Return the members of a JSON object with their values, and each value as it was written."""
    found: dict[str, tuple[Any, str]] = {}
    at = _expect(text, _skip(text, 0), "{")
    if text[_skip(text, at)] == "}":
        return _end(text, _skip(text, at) + 1, found)
    while True:
        start = _skip(text, at)
        _expect(text, start, '"')
        name, at = _DECODER.raw_decode(text, start)
        start = _skip(text, _expect(text, _skip(text, at), ":"))
        value, at = _DECODER.raw_decode(text, start)
        found[name] = (value, text[start:at])
        at = _skip(text, at)
        if text[at] == "}":
            return _end(text, at + 1, found)
        at = _expect(text, at, ",")


def _end(text: str, at: int, found: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    if _skip(text, at) != len(text):
        raise ValueError(f"something follows it at {at}")
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, sign: Literal["{", '"', ":", ","]) -> int:
    if text[at] != sign:
        raise ValueError(f"{sign} is missing at {at}")
    return at + 1
