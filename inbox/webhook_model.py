"""Webhooks as they are stored, and what a second one of the same id means. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

#: What is in the names of headers that hold credentials, such as x-gitlab-token; they are used to verify, and never
#: stored. A signature is no credential: it fits one request.
CREDENTIALS = re.compile(
    r"(^|[-_])(authori[sz]ation|auth|bearer|jwt|token|secret|passw(or)?d|credentials?|cookie|session|api[-_]?key|"
    r"access[-_]?key)([-_]|$)"
)


class WebhookState(StrEnum):
    """State of a stored webhook."""

    RECEIVED = "RECEIVED"
    PROCESSING = "PROCESSING"
    PROCESSED = "PROCESSED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


class Taken(Enum):
    """What became of a webhook at the door."""

    STORED = "stored"
    REPEATED = "repeated"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A webhook, as `event_id`, `tenant` and `to_event` see it.

    Attributes:
        provider: Who it is from, as the service calls them.
        path: The request's path, without its query.
        headers: By lower case name; those with credentials are gone once it is stored.
        body: The bytes as they came.
        tenant: Whose it is.
        received_at: When it came, UTC.
    """

    provider: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    tenant: str = ""
    received_at: datetime | None = None

    def json(self) -> Any:
        """Return the body read as JSON.

        Raises:
            ValueError: It is none.
        """
        return json.loads(self.body)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the body."""
        return hashlib.sha256(self.body).digest()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A stored webhook that this process works on, under a fence."""

    id: UUID
    fence: int
    attempts: int
    event_id: str
    traceparent: str | None
    request: WebhookRequest


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Read ASGI headers: lower case names, values as latin-1; a repeated one is joined with ", "."""
    found: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def kept_headers(headers: Mapping[str, str]) -> str:
    """Return the headers that are stored, as JSON: none with credentials, nothing that jsonb cannot hold."""
    kept = {
        name: value.replace("\x00", "\ufffd")
        for name, value in headers.items()
        if not CREDENTIALS.search(name)
    }
    return json.dumps(kept, ensure_ascii=False)
