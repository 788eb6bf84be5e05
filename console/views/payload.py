"""Bytes that anybody may have sent, as a page can show them. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Literal

from .model import View

#: Most bytes of a value that are shown; the rest is downloaded.
SHOWN = 65_536
_ROW = 16
#: Largest JSON that is written anew with line breaks, in bytes: what is larger is shown as it was sent.
_PRETTY = 262_144
#: Characters that would change how the text around them reads; shown as their code points.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


class Payload(View):
    """Bytes for people.

    Attributes:
        kind: json, text or hex; none for null, hidden where the reader may not see it.
        text: What is shown; safe as text of a page once it is escaped.
        bytes: How many there are; None for null.
        cut: Whether only the beginning is shown.
    """

    kind: Literal["json", "text", "hex", "none", "hidden"]
    text: str = ""
    bytes: int | None = None
    cut: bool = False


class Header(View):
    """A header of a record."""

    name: str
    value: Payload


def shown(data: bytes | None, *, readable: bool, most: int = SHOWN) -> Payload:
    """Return bytes as they are shown: JSON with line breaks and its numbers as written, text, else hexadecimal.

    Args:
        readable: Whether the reader may see what it says; else only its size is told.
        most: Most bytes that are shown.
    """
    if data is None:
        return Payload(kind="none")
    if not readable:
        return Payload(kind="hidden", bytes=len(data))
    part = data[:most]
    cut = len(data) > most
    pretty = _pretty(data) if len(data) <= min(_PRETTY, most) else None
    if pretty is not None:
        return Payload(kind="json", text=visible(pretty), bytes=len(data))
    try:
        text = part.decode() if not cut else part.decode(errors="ignore")
    except UnicodeDecodeError:
        text = None
    if text is None or (cut and not _is_text(data)) or _is_binary(text):
        return Payload(kind="hex", text=_hex(part), bytes=len(data), cut=cut)
    return Payload(kind="text", text=visible(text), bytes=len(data), cut=cut)


def visible(text: str) -> str:
    """Return text in which control characters and changes of direction are seen instead of obeyed."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _harmless(character) else _named(character) for character in text)


def short(data: bytes | None, *, readable: bool, most: int = 80) -> str | None:
    """Return a key in one line: as text, else 0x…; None for null."""
    if data is None:
        return None
    if not readable:
        return "•••"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"0x{data[:most].hex()}"
    return visible(text if len(text) <= most else f"{text[:most]}…").replace("\n", "\\n")


def headers(pairs: Sequence[tuple[str, bytes | None]], *, readable: bool) -> list[Header]:
    """Return a record's headers, each shown."""
    return [
        Header(name=visible(name)[:300], value=shown(value, readable=readable, most=4_096))
        for name, value in pairs
    ]


def in_base64(data: bytes | None) -> str | None:
    """Return bytes for an export, which has to hold all of them."""
    return None if data is None else base64.b64encode(data).decode()


def _pretty(data: bytes) -> str | None:
    """Return an object or array with line breaks, members and digits as they were sent; None where it is none."""
    if data[:1] not in {b"{", b"["} and data.lstrip()[:1] not in {b"{", b"["}:
        return None
    try:
        # Numbers go through as they stand: a float would show another amount.
        found = json.loads(data, parse_float=_Number, parse_int=_Number, object_pairs_hook=_Members)
        return _write(found, "")
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it was written."""


class _Members(list[tuple[str, object]]):
    """An object's members, one that is there twice too."""


def _write(value: object, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Members):
        rows = [f"{inner}{json.dumps(name, ensure_ascii=False)}: {_write(one, inner)}" for name, one in value]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}" if rows else "{}"
    if isinstance(value, list):
        rows = [inner + _write(one, inner) for one in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]" if rows else "[]"
    return json.dumps(value, ensure_ascii=False)


def _hex(data: bytes) -> str:
    """Return a dump of bytes: offset, hexadecimal, and what is printable ASCII."""
    rows = []
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{_ROW * 3}} {seen}")
    return "\n".join(rows)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_binary(text: str) -> bool:
    """Whether one in ten characters is a control character, which people cannot read."""
    odd = sum(1 for character in text if not _harmless(character) and character not in _DIRECTIONS)
    return odd * 10 > len(text)


def _harmless(character: str) -> bool:
    return character in "\n\t" or (
        character not in _DIRECTIONS
        and character >= " "
        and not "\x7f" <= character <= "\x9f"
        and not "\ud800" <= character <= "\udfff"
    )


def _named(character: str) -> str:
    return f"\\u{ord(character):04x}"
