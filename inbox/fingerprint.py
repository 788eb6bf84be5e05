"""What makes two events under one id the same event; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel


def fingerprint(type: str, data: bytes) -> bytes:
    """Return sha256 of an event's type and its data as canonical JSON; the order of keys makes no difference.

    Numbers are compared as written, digit by digit, since a float would make unequal amounts equal. Data that is no
    JSON is taken as it is.
    """
    try:
        text = data.decode()
        found = _read(text)
        canonical = (_flat(found, text) or _canonical(found)).encode()
    except (ValueError, RecursionError):
        canonical = data
    return hashlib.sha256(type.encode(errors="surrogatepass") + b"\n" + canonical).digest()


def said(model: BaseModel) -> bytes:
    """Return the fields of a model that were set, as JSON that is the same in every process: sets have one order."""
    plain = model.model_dump(mode="json", exclude_unset=True)
    ordered = _ordered(plain, model.model_dump(exclude_unset=True))
    return json.dumps(ordered, sort_keys=True, separators=(",", ":")).encode()


def _ordered(plain: Any, value: Any) -> Any:
    """Sort the lists that are sets; both are one model's, so that what belongs together is at the same place."""
    if isinstance(value, set | frozenset) and isinstance(plain, list):
        return sorted(plain, key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, dict) and isinstance(plain, dict) and len(value) == len(plain):
        pairs = zip(plain.items(), value.values(), strict=True)
        return {name: _ordered(part, inner) for (name, part), inner in pairs}
    if isinstance(value, list | tuple) and isinstance(plain, list) and len(value) == len(plain):
        return [_ordered(part, inner) for part, inner in zip(plain, value, strict=True)]
    return plain


def _read(text: str) -> Any:
    """Return what the JSON says; the decoder's own scanner does it where there is no space around, in half the time."""
    try:
        found, end = _SCAN(text, 0)
    except StopIteration:
        end = -1
    return found if end == len(text) else _DECODER.decode(text)


def _flat(found: Any, text: str) -> str | None:
    """Return the canonical JSON of an object of plain members, None of anything else; half the encoder's time.

    Texts need no escape where the whole has none and is ASCII without U+007F; other control characters are in no text.
    """
    if (
        type(found) is not dict
        or len(found) > _MEMBERS
        or not text.isascii()
        or "\\" in text
        or "\x7f" in text
    ):
        return None
    members = []
    for name in sorted(found):
        value = found[name]
        if type(value) is str:
            members.append(f'"{name}":"{value}"')
        elif type(value) is list and len(value) == 2 and value[0] == "#" and type(value[1]) is str:
            members.append(f'"{name}":["#","{value[1]}"]')
        elif value is None or type(value) is bool:
            members.append(f'"{name}":{_WORDS[value]}')
        else:
            return None
    return "{" + ",".join(members) + "}"


def _written(number: str) -> list[str]:
    # A list of one text cannot come from another JSON value that reads the same but ["#", …] written out.
    return ["#", number]


#: Most members that Python writes faster than the encoder.
_MEMBERS = 24
_WORDS = {None: "null", True: "true", False: "false"}
_DECODER = json.JSONDecoder(parse_float=_written, parse_int=_written, parse_constant=_written)
_SCAN: Callable[[str, int], tuple[Any, int]] = getattr(_DECODER, "scan_once")  # noqa: B009 - typeshed lacks it
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _encoder() -> Callable[[Any], str]:
    """Return what writes canonical JSON: the encoder's own C part, which json makes anew for each call, made once."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    escape = json.encoder.encode_basestring_ascii
    write = make(None, _ENCODER.default, escape, None, ":", ",", True, False, True)
    return lambda value: "".join(write(value, 0))


_canonical = _encoder()
