"""What makes two events under one id the same event; pure."""

from __future__ import annotations

import hashlib
import json


def fingerprint(type: str, data: bytes) -> bytes:
    """Return sha256 of an event's type and its data as canonical JSON; the order of keys makes no difference.

    Numbers are compared as written, digit by digit, since a float would make unequal amounts equal. Data that is no
    JSON is taken as it is.
    """
    try:
        canonical = _ENCODER.encode(_DECODER.decode(data.decode())).encode()
    except (ValueError, RecursionError):
        canonical = data
    return hashlib.sha256(type.encode(errors="surrogatepass") + b"\n" + canonical).digest()


def _written(number: str) -> list[str]:
    # A list of one text cannot come from another JSON value that reads the same but ["#", …] written out.
    return ["#", number]


_DECODER = json.JSONDecoder(parse_float=_written, parse_int=_written, parse_constant=_written)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
