"""What a person makes of a dead letter's record: another value, key or headers under an id of its own; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from ..schemas.codecs import CODEC_HEADER
from ..schemas.envelope import STRUCTURED, Envelope, NotAnEvent, Record, essence, read_event
from ..schemas.errors import StateError, UsageError
from ..schemas.structured import BadStructure, is_json, read_structured
from ..schemas.texts import unstorable
from .fingerprint import fingerprint

#: Header of an edited event that names the event it was made from.
EDITED_FROM = "milepost-edited-from"
#: Codes of letters whose event needs nothing but an id of its own.
OF_THE_ID = frozenset({"TOO_OLD", "EVENT_ID_REUSED", "INBOX_ROW_GONE"})
#: Headers that an edit sets itself.
_OWN = frozenset({"ce_id", EDITED_FROM})
#: Longest name and text of a header, in characters, and most headers.
_NAME, _TEXT, _MOST = 255, 32_000, 200
_PATHS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is to be different; what is None stays.

    Attributes:
        value: The new value.
        key: The new record key.
        headers: Texts by name; None takes a header away. Names are compared without regard to case.
    """

    value: bytes | None = None
    key: bytes | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edited:
    """An edited record.

    Attributes:
        envelope: What it says as an event.
        fingerprint: As the inbox keeps it.
        changes: What differs, for the audit: names and paths, never what the value holds.
    """

    record: Record
    envelope: Envelope
    fingerprint: bytes
    changes: Mapping[str, Any]


def edited(
    record: Record, edit: Edit, *, n: int, code: str, event_id: UUID, original: UUID, max_bytes: int
) -> Edited:
    """Return a letter's record as a person wants it, under a new id.

    Args:
        record: The letter's own.
        n: Its number, for errors.
        code: Why it is a letter.
        event_id: Id of the new event.
        original: Inbox identity of the letter's event.
        max_bytes: Largest value and headers together.

    Raises:
        UsageError: MP770 when what is given cannot be an event, MP771 when it is too large, MP772 when nothing differs.
        StateError: MP773 when the letter is coded by a codec, so that nobody can edit what it says.
    """
    if any(name.lower() == CODEC_HEADER for name, _ in record.headers):
        raise StateError(
            "MP773",
            f"letter {n} was written by a codec, which binds what it says to its id. Have the sender publish it anew, "
            "then ignore this letter.",
        )
    wanted = _apply(record, edit, n)
    changes = _changes(record, wanted)
    if not changes and code not in OF_THE_ID:
        raise UsageError(
            "MP772", f"letter {n}: nothing would differ. Redrive it as it is, or change something."
        )
    wanted = _binary(wanted, n)
    kept = [(name, value) for name, value in wanted.headers if name.lower() not in _OWN]
    own = [("ce_id", str(event_id).encode()), (EDITED_FROM, str(original).encode())]
    wanted = replace(wanted, headers=[*kept, *own])
    size = len(wanted.value or b"") + sum(len(name) + len(value or b"") for name, value in wanted.headers)
    if size > max_bytes:
        raise UsageError(
            "MP771",
            f"letter {n}: the edited event is {size} bytes, the limit is {max_bytes} (MILEPOST_MAX_EVENT_BYTES).",
        )
    try:
        envelope, data = read_event(wanted)
    except NotAnEvent as error:
        raise _no_event(n, f"{error.code}: {error}") from error
    _check_data(n, envelope, data)
    return Edited(wanted, envelope, fingerprint(envelope.type, data), changes)


def _apply(record: Record, edit: Edit, n: int) -> Record:
    given = {name.lower(): (name, text) for name, text in edit.headers.items()}
    if len(edit.headers) > _MOST:
        raise _no_event(n, f"it would have {len(edit.headers)} new headers, {_MOST} are allowed")
    for name, text in given.values():
        _check_header(n, name, text)
    headers = list[tuple[str, bytes | None]]()
    for name, value in record.headers:
        found = given.pop(name.lower(), None)
        if found is None:
            headers.append((name, value))
        elif found[1] is not None:
            headers.append((name, found[1].encode()))
    headers.extend((name, text.encode()) for name, text in given.values() if text is not None)
    value = record.value if edit.value is None else edit.value
    return replace(record, value=value, key=record.key if edit.key is None else edit.key, headers=headers)


def _check_header(n: int, name: str, text: str | None) -> None:
    if not name.strip() or len(name) > _NAME or unstorable(name) or not name.isprintable():
        raise _no_event(n, f"{name[:40]!r} is no name of a header")
    if name.lower() in _OWN or name.lower() == CODEC_HEADER:
        raise _no_event(n, f"the header {name} is not set by hand: an edited event gets an id of its own")
    if text is not None and (unstorable(text) or len(text) > _TEXT):
        raise _no_event(
            n, f"the header {name} holds U+0000, a lone surrogate or more than {_TEXT} characters"
        )


def _binary(record: Record, n: int) -> Record:
    """Return a structured event in binary mode, whose id is a header; every other record as it is."""
    types = [value or b"" for name, value in record.headers if name.lower() == "content-type"]
    if not types or essence(types[-1].decode(errors="replace")) != STRUCTURED:
        return record
    try:
        attributes, data = read_structured(record.value or b"")
    except BadStructure as error:
        raise _no_event(n, f"BAD_JSON: {error}") from error
    content_type = attributes.pop("datacontenttype", "application/json")
    kept = [
        (name, value)
        for name, value in record.headers
        if name.lower() != "content-type" and not name.lower().startswith("ce_")
    ]
    found = [(f"ce_{name}", text.encode(errors="replace")) for name, text in attributes.items()]
    return replace(record, value=data, headers=[*kept, *found, ("content-type", content_type.encode())])


def _check_data(n: int, envelope: Envelope, data: bytes) -> None:
    if not is_json(envelope.content_type):
        return
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_event(n, f"its value is no JSON: {error}") from error
    if any(unstorable(text) for text in _texts(found)):
        raise _no_event(n, "its value holds U+0000 or a lone surrogate, which no database column takes")


def _texts(found: object) -> Iterator[str]:
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one)
            waiting.extend(one.values())


def _no_event(n: int, why: str) -> UsageError:
    return UsageError("MP770", f"letter {n} cannot be edited like this: {why}.")


def _changes(before: Record, after: Record) -> dict[str, Any]:
    found = dict[str, Any]()
    if before.value != after.value:
        found["value"] = {"before": _digest(before.value), "after": _digest(after.value)}
        paths = _paths(before.value, after.value)
        if paths is not None:
            found["fields"] = paths
    if before.key != after.key:
        found["key"] = {"before": _word(before.key), "after": _word(after.key)}
    headers = _headers(before, after)
    if headers:
        found["headers"] = headers
    return found


def _headers(before: Record, after: Record) -> list[str]:
    old, new = (
        {
            name.lower(): [v for other, v in one.headers if other.lower() == name.lower()]
            for name, _ in one.headers
        }
        for one in (before, after)
    )
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _digest(value: bytes | None) -> dict[str, Any] | None:
    return None if value is None else {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}


def _word(key: bytes | None) -> str | None:
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key[:100].hex()}"
    return f"0x{key[:100].hex()}" if unstorable(text) else text[:200]


def _paths(before: bytes | None, after: bytes | None) -> list[str] | None:
    """Return the paths of members that differ, such as "order.lines.0.sku"; None where one of both is no JSON."""
    try:
        old, new = json.loads(before or b""), json.loads(after or b"")
    except (ValueError, RecursionError):
        return None
    found = list[str]()
    for path in _differing("", old, new):
        # Names are as others chose them.
        found.append(path[:200].replace("\x00", "\ufffd").encode(errors="replace").decode())
        if len(found) == _PATHS:
            break
    return sorted(found)


def _differing(path: str, old: object, new: object) -> Iterator[str]:
    waiting: list[tuple[str, Any, Any]] = [(path, old, new)]
    while waiting:
        where, one, other = waiting.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            names: Collection[str] = one.keys() | other.keys()
            waiting.extend(_member(where, name, one, other) for name in names)
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            waiting.extend(
                (f"{where}.{at}".lstrip("."), *pair) for at, pair in enumerate(zip(one, other, strict=True))
            )
        elif type(one) is not type(other) or one != other:
            yield where or "(all)"


_MISSING = object()


def _member(where: str, name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any]:
    return f"{where}.{name}".lstrip("."), one.get(name, _MISSING), other.get(name, _MISSING)
