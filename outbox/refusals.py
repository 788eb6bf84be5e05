"""Which events are refused before anything is written, and in which words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from ..schemas.errors import UsageError
from ..schemas.events import Event
from ..schemas.parts import SECRETS, parts_of, secret_in

#: Header names that Milepost writes itself, beside ce_* and milepost-*.
RESERVED_HEADERS = frozenset({"content-type", "traceparent", "tracestate"})
#: What a class has that does not write its JSON itself; this turns bytes into text, and the body is bytes.
_DUMP = BaseModel.model_dump_json
#: What pydantic writes in place of a secret.
_MASK = b'"**********"'
#: What can hold neither a text nor an instant.
_HARMLESS = frozenset({int, float, bool, type(None), Decimal, UUID, date})
_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check_values(where: str, value: object) -> None:
    """Refuse naive datetimes, NUL and lone surrogates anywhere in a value.

    Args:
        where: Name for the error, such as the event's type.

    Raises:
        UsageError: MP310 or MP311, naming the field.
    """
    if _is_plain(value):
        return
    for path, leaf in _leaves("", value):
        if isinstance(leaf, datetime):
            if leaf.utcoffset() is None:
                raise UsageError(
                    "MP310",
                    f"publish(): {where}, field {path} is a datetime without a time zone, so readers would "
                    "disagree about the instant. Make it aware, or declare it as pydantic.AwareDatetime.",
                )
        elif isinstance(leaf, str):
            _check_text(where, f"field {path}", leaf)


def _is_plain(value: object) -> bool:
    """Whether a quick look shows that nothing in a value can be refused; most events are flat."""
    # isinstance of a pydantic class would be two calls of Python.
    if BaseModel not in type(value).__mro__ or getattr(value, "__pydantic_extra__"):  # noqa: B009
        return False
    for field in value.__dict__.values():
        kind = type(field)
        if kind is str:
            if "\0" in field or not field.isascii():
                return False
        elif kind not in _HARMLESS:
            return False
    return True


def too_large(where: str, size: int, limit: int) -> UsageError:
    """Make the error for a body over a limit, both in bytes."""
    return UsageError(
        "MP312",
        f"publish(): {where} is {size} bytes, the limit is {limit}. Publish a reference to the data instead, "
        "or raise the limit of the topic and of MILEPOST_MAX_EVENT_BYTES.",
    )


def no_topic(where: str, name: str) -> UsageError:
    """Make the error for a name that no topic can have."""
    return UsageError(
        "MP313",
        f"publish(): {where}: {name[:60]!r} is no name of a Kafka topic. Use up to 249 letters, digits, '.', '_' and "
        "'-'.",
    )


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, (str, datetime, *SECRETS)):
        yield path or "its value", value
        return
    for name, inner in parts_of(value):
        if isinstance(name, str):
            yield f"{path}.{name} (as a name)".lstrip("."), name
        yield from _leaves(f"{path}.{name}".lstrip("."), inner)


def body_of(event: Event) -> bytes:
    """Return the JSON of an event.

    Raises:
        UsageError: MP317 when a field cannot be serialised, MP311 when a serialiser of its own writes NUL.
    """
    try:
        if type(event).model_dump_json is _DUMP:
            body = event.__pydantic_serializer__.to_json(event, by_alias=True)
        else:
            body = event.model_dump_json(by_alias=True).encode()
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise UsageError(
            "MP317",
            f"publish(): {event.milepost_spec.type} cannot be written as JSON: {error}. Use fields that "
            "pydantic can serialise, or give the field a serialiser.",
        ) from error
    # The expression looks at every backslash; nearly no body has what it looks for, and that is found at once.
    if b"\\u0000" in body and _NUL_IN_JSON.search(body):
        _check_text(event.milepost_spec.type, "its body", "\0")
    if _MASK in body:
        _check_masked(event)
    return body


def _check_masked(event: Event) -> None:
    found = secret_in(event)
    if found is not None:
        raise UsageError(
            "MP317",
            f"publish(): {event.milepost_spec.type}, field {found[0]} is a {found[1]}, which is written as "
            "asterisks, so its value would be lost. Declare it as str and let the class encrypt (codec=AesGcm()), "
            "or give the field a serialiser.",
        )


def check_headers(where: str, headers: Mapping[Any, Any]) -> None:
    """Refuse headers that are not text, or whose names belong to Milepost.

    Raises:
        UsageError: MP315, MP316 or MP311.
    """
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise UsageError(
                "MP315",
                f"publish(): {where}, header {name!r} is {type(value).__name__}, and headers are text so "
                "that every Kafka client reads them. Pass str.",
            )
        if name.lower().startswith(("ce_", "milepost-")) or name.lower() in RESERVED_HEADERS or not name:
            raise UsageError(
                "MP316",
                f"publish(): {where}, header {name!r} is written by Milepost itself. Use another name; "
                "correlation, causation and trace travel on their own.",
            )
        _check_text(where, f"header {name!r}", name)
        _check_text(where, f"header {name!r}", value)


def check_around(where: str, key: str | None, headers: Mapping[str, str], limit: int) -> None:
    """Refuse a key and headers that are larger than a body may be; the relay could not even put them aside.

    Args:
        limit: In bytes. Characters are counted, which are no more than bytes.

    Raises:
        UsageError: MP312.
    """
    size = len(key or "")
    for name, value in headers.items():
        size += len(name) + len(value)
    if size > limit:
        raise too_large(f"{where}, its key and headers together,", size, limit)


def check_texts(where: str, texts: Iterable[tuple[str, str | None]]) -> None:
    """Refuse NUL and lone surrogates in texts that go into columns.

    Raises:
        UsageError: MP311, with the text's name in `texts`.
    """
    for name, text in texts:
        if text is not None:
            _check_text(where, name, text)


def _check_text(where: str, what: str, text: str) -> None:
    if "\0" in text:
        found = "a NUL character, which PostgreSQL cannot store"
    elif not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        found = "a lone surrogate, which is no text in UTF-8"
    else:
        return
    raise UsageError(
        "MP311", f"publish(): {where}, {what} holds {found}. Clean the text before it is published."
    )
