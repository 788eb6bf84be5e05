"""A row's headers, from JSON text to how they stand in its record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from .records import VARINT, sized

#: Headers whose values are each record's own; what else there is, most records of a type have in common.
_OWN = ("ce_id", "ce_time", "traceparent", "ce_causationid", "ce_correlationid")
#: Longest headers that are remembered, in bytes, and how many: no more than 50 MB.
_LONGEST, _MOST = 4000, 2048
#: After so many of one kind that were not as the one before, the next are not looked at for what they have in common.
_PATIENCE = 16
#: What neither ends a text in JSON nor stands for something else.
_PLAIN = bytes(byte for byte in range(256) if byte not in b'"\\')
#: Where headers of one length differ first by their type.
_TYPE = slice(92, 140)


@dataclass(slots=True)
class _Layout:
    """Headers of one kind: the same text but for values of the same lengths.

    Attributes:
        cut: Cuts a text into what is common and what is its own, in turns.
        common: What is common.
        written: As they stand in a record, with room for what is their own.
        missed: Texts in a row that were of another kind.
    """

    cut: Callable[[bytes], tuple[bytes, ...]]
    common: tuple[bytes, ...]
    written: list[bytes]
    missed: int = 0


_layouts: dict[tuple[int, bytes], _Layout] = {}


def headers_of(text: str) -> bytes:
    """Return a row's headers as they stand in its record, from how jsonb prints them.

    Most texts are like one before but for their own values, which are cut out at the same places. With no quote and no
    backslash in these the text has the same names in the same order.

    Raises:
        ValueError, AttributeError: It is no JSON object.
    """
    raw = text.encode()
    kind = (len(raw), raw[_TYPE])
    layout = _layouts.get(kind)
    if layout is not None:
        parts = layout.cut(raw)
        if parts[::2] == layout.common:
            own = parts[1::2]
            if not b"".join(own).translate(None, _PLAIN):
                layout.missed = 0
                found = layout.written.copy()
                found[1::2] = own
                return b"".join(found)
    return _of_new_kind(raw, kind, layout)


def _of_new_kind(raw: bytes, kind: tuple[int, bytes], known: _Layout | None) -> bytes:
    headers = from_json(raw)
    written = [(name, sized(name.encode()), _value(value)) for name, value in headers.items()]
    missed = 0 if known is None else known.missed + 1
    if len(raw) <= _LONGEST and b"\\" not in raw and missed < _PATIENCE:
        made = _layout(raw, headers, written)
        if made is not None:
            if len(_layouts) >= _MOST:
                _layouts.clear()
            made.missed = missed
            _layouts[kind] = made
    return VARINT[len(written)] + b"".join(name + sized(value) for _, name, value in written)


def _layout(raw: bytes, headers: dict[str, Any], written: list[tuple[str, bytes, bytes]]) -> _Layout | None:
    places, common, found, at = "", [], [VARINT[len(written)]], 0
    for name, header, value in written:
        if name not in _OWN or not isinstance(headers[name], str):
            found[-1] += header + sized(value)
            continue
        begin = raw.index(b'"%b": "' % name.encode(), at) + len(name) + 5
        common.append(raw[at:begin])
        places += f"{begin - at}s{len(value)}s"
        at = begin + len(value)
        found[-1] += header + VARINT[len(value)]
        found += [b"", b""]
    if not common:
        return None
    common.append(raw[at:])
    return _Layout(struct.Struct(f"{places}{len(raw) - at}s").unpack, tuple(common), found)


def _value(value: Any) -> bytes:
    """Return a header's value; `publish` writes texts only, what else SQL may have written goes as JSON."""
    return value.encode() if isinstance(value, str) else to_json(value)
