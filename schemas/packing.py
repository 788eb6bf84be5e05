"""Record headers as one value of bytes, as dead letters keep them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence


def pack_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return headers as JSON pairs of name and base64 value (or null), so that any bytes survive."""
    pairs = [
        [name, None if value is None else base64.b64encode(value).decode("ascii")] for name, value in headers
    ]
    return json.dumps(pairs).encode("ascii")


def unpack_headers(packed: bytes) -> list[tuple[str, bytes | None]]:
    """Return what `pack_headers` packed.

    The relay's letters of the first release hold an object of names and texts instead; it is read too.
    """
    found = json.loads(packed)
    if isinstance(found, dict):
        return [(name, None if text is None else str(text).encode()) for name, text in found.items()]
    return [(name, None if text is None else base64.b64decode(text)) for name, text in found]
