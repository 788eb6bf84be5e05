"""How the body of an event becomes the bytes that are stored and sent, and how it is read back.

JSON unless the event class says otherwise: `class Paid(Event, …, codec=AesGcm())`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

#: Header that names the codec of a record; a record without it is JSON.
CODEC_HEADER = "milepost-codec"
#: Header that names the key a record was encrypted with.
KEY_HEADER = "milepost-key-id"
_JSON = "application/json"


@dataclass(slots=True, unsafe_hash=True)
class CodecContext:
    """What names an event, as its record's headers say; a codec may bind the body to it, and does not change it.

    Attributes:
        type: CloudEvents type.
        event_id: CloudEvents id as text.
    """

    type: str
    event_id: str
    version: int = 1
    tenant: str = ""


@dataclass(slots=True, unsafe_hash=True)
class Coded:
    """A body as it is stored and sent; not frozen, for the time that takes, and not changed.

    Attributes:
        content_type: Media type of `data`.
        headers: The codec's own headers; their names begin with milepost-, their values have up to 200 characters.
    """

    data: bytes
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class Unreadable(Exception):
    """A body cannot be read; the record becomes a dead letter with this code.

    Args:
        code: A stable word such as DECRYPT_FAILED.
        message: For people; holds nothing of an encrypted body.
        recoverable: Whether the same bytes may be readable later.
    """

    def __init__(self, code: str, message: str, *, recoverable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.recoverable = recoverable


class Codec(Protocol):
    """Turns the JSON of an event into bytes and back. One instance serves all threads."""

    @property
    def name(self) -> str:
        """Travels as the header milepost-codec; '' is plain JSON and has no header."""
        ...

    @property
    def secret(self) -> bool:
        """Whether bodies must not be readable at rest: then nothing of them goes into letters and errors."""
        ...

    @property
    def reads_plain(self) -> bool:
        """Whether a record without the header milepost-codec is read as plain JSON."""
        ...

    def check(self) -> None:
        """Raise when this process lacks what the codec needs; called when a consumer of its events begins."""
        ...

    def encode(self, body: bytes, about: CodecContext) -> Coded:
        """Return what is stored and sent for an event's JSON."""
        ...

    def digests(self, data: bytes) -> Sequence[bytes]:
        """Return what tells some data apart without telling it: the digest to store, then those stored earlier."""
        ...

    def decode(self, coded: Coded, about: CodecContext) -> bytes:
        """Return the JSON again; `coded.headers` are the record's headers that begin with milepost-.

        Raises:
            Unreadable: The bytes are not what `encode` makes of this event.
        """
        ...


class Json:
    """Plain JSON, the default."""

    name = ""
    secret = False
    reads_plain = True

    def check(self) -> None:
        """Need nothing."""

    def encode(self, body: bytes, about: CodecContext) -> Coded:
        """Return the body as it is."""
        return Coded(body)

    def digests(self, data: bytes) -> Sequence[bytes]:
        """Return sha256 of the data."""
        return [hashlib.sha256(data).digest()]

    def decode(self, coded: Coded, about: CodecContext) -> bytes:
        """Return the data as it is."""
        return coded.data


#: What an event class has that names no codec.
JSON: Codec = Json()

Headers: TypeAlias = Mapping[str, str]


def decoded(codec: Codec, data: bytes, headers: Headers, about: CodecContext) -> bytes:
    """Return the JSON of a received body.

    Args:
        codec: The event class's.
        headers: The record's headers that begin with milepost-, lower case.

    Raises:
        Unreadable: CODEC_UNKNOWN when the record was written by another codec, NOT_ENCRYPTED when it is plain and must
            not be, or what the codec itself says.
    """
    said = headers.get(CODEC_HEADER, "")
    if said == codec.name:
        return codec.decode(Coded(data, headers=headers), about)
    if said:
        known = f"only {codec.name}" if codec.name else "no codec"
        raise Unreadable(
            "CODEC_UNKNOWN", f"it was written by the codec {said[:100]!r}, and its class here names {known}"
        )
    if codec.reads_plain:
        return data
    raise Unreadable(
        "NOT_ENCRYPTED", f"it is plain, and its class takes only what {codec.name} has encrypted"
    )
