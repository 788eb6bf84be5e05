"""HTTP requests and answers as the idempotency records know them. Pure.

Idempotency-Key: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ (a string of RFC 9651).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .fingerprint import fingerprint

#: Longest key, in characters.
LONGEST_KEY = 255
#: Says of a 409 what became of the first request under the key, "unknown" or "done": it is no definite no.
OUTCOME = "Idempotency-Outcome"
#: Its value by the code of the answer.
OUTCOMES = {"MP462": "unknown", "MP466": "done"}
#: Headers of an answer that are kept with it: what describes the body and the resource, nothing of a session.
KEPT = frozenset(
    {
        "content-type",
        "content-language",
        "content-encoding",
        "content-disposition",
        "content-location",
        "location",
        "etag",
        "last-modified",
        "link",
        "vary",
        "cache-control",
        OUTCOME.lower(),
    }
)
#: Statuses that say that the request was not carried out: authenticate, wait, come again (RFC 9110, 6585 and 8470).
NOT_DONE = frozenset({401, 403, 408, 421, 425, 429, 503})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A whole answer; its body is None when it was too long to be kept."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes | None

    @property
    def not_done(self) -> bool:
        """Whether it says that nothing was done, so that the request may simply be sent again."""
        return self.status in NOT_DONE

    @property
    def kept_headers(self) -> dict[str, str]:
        """The headers that are kept, as latin-1 text."""
        found: dict[str, str] = {}
        for name, value in self.headers:
            key = name.decode("latin-1").lower()
            if key in KEPT:
                text = value.decode("latin-1").replace("\x00", "")
                found[key] = f"{found[key]}, {text}" if key in found else text
        return found


#: A string item (RFC 9651, 3.3.3) and, after it, parameters, which are ignored as those that are not known are.
_STRING = re.compile(r""""((?:[ !#-\[\]-~]|\\["\\])*)" *(?:;.*)?""")


def read_key(values: Sequence[bytes]) -> str | None:
    """Read the header as a string item; None when it is none, is there several times, empty, or too long."""
    found = _STRING.fullmatch(values[0].decode("latin-1").strip(" ")) if len(values) == 1 else None
    if found is None:
        return None
    key = re.sub(r"\\(.)", r"\1", found[1])
    return key if 0 < len(key) <= LONGEST_KEY else None


def key_problem(values: Sequence[bytes]) -> str:
    """Say what is wrong with a header that `read_key` does not take."""
    if not values:
        return 'The request needs a key, such as Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324".'
    if len(values) > 1:
        return "The header Idempotency-Key is there several times."
    return (
        "The header Idempotency-Key is no string of RFC 9651: ASCII text in double quotes, such as "
        f'"8e03978e-40d5-43dd-bc93-6894a57f9324", of 1 to {LONGEST_KEY} characters.'
    )


def fingerprint_of(scope: Mapping[str, Any], body: bytes) -> bytes:
    """Return SHA-256 over method, path, query and body; a body that is JSON counts by its value, not by its spaces."""
    header = next((value for name, value in scope["headers"] if name.lower() == b"content-type"), b"")
    content = header.split(b";")[0].strip().lower()
    is_json = content == b"application/json" or content.endswith(b"+json")
    parts = [
        scope["method"].encode(),
        scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass"),
        scope.get("query_string", b""),
        fingerprint("json", body) if is_json else body,
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part)
    return digest.digest()
