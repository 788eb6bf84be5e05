"""Reading the body of a received event: decoded, brought to the class's version, validated.

A version that is newer than the class becomes a dead letter, although the class could often read it: additions need no
new version, so a new version says that the meaning of what was there has changed, and a handler that read euros as
cents would do so in silence. The letter waits until the newer class is deployed, and is redriven then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from .codecs import JSON, CodecContext, Unreadable, decoded
from .envelope import Envelope
from .events import Event, Upcaster
from .parts import faults_of
from .texts import version_of

E = TypeVar("E", bound=Event)


def read_body(kind: type[E], data: bytes, about: CodecContext, headers: Mapping[str, str]) -> E:
    """Return the event in a record's data.

    Args:
        kind: Its class.
        headers: The record's headers that begin with milepost-, lower case.

    Raises:
        Unreadable: CODEC_UNKNOWN, NOT_ENCRYPTED or what the codec says; EVENT_TOO_NEW, NO_UPCASTER or UPCAST_FAILED;
            INVALID_BODY. Nothing of an encrypted body is in the message.
    """
    body = decoded(kind.milepost_spec.codec, data, headers, about)
    return _validated(kind, body, about.version)


def read_body_of(kind: type[E], data: bytes, envelope: Envelope) -> E:
    """Return the event in the data of a record whose envelope was read.

    Args:
        kind: Its class.

    Raises:
        Unreadable: As `read_body`.
    """
    spec = kind.milepost_spec
    if spec.codec is JSON and envelope.version == spec.version and not envelope.extra:
        return _validated(kind, data, envelope.version)
    about = CodecContext(envelope.type, envelope.event_id, envelope.version, envelope.tenant)
    return read_body(kind, data, about, envelope.extra)


def _validated(kind: type[E], body: bytes, version: int) -> E:
    try:
        found: E = kind.__pydantic_validator__.validate_json(at_version(kind, body, version))
    except Unreadable:
        raise
    except Exception as error:  # a user's validator may raise anything
        words = faults_of(kind, error) if kind.milepost_spec.codec.secret else str(error)
        raise Unreadable("INVALID_BODY", f"it is no {kind.__name__}: {words}") from None
    return found


def read_stored(kind: type[E], data: bytes, headers: Mapping[str, str]) -> E:
    """Return the event in an outbox row.

    Args:
        headers: The row's.

    Raises:
        Unreadable: As `read_body`.
    """
    about = CodecContext(
        type=headers.get("ce_type", ""),
        event_id=headers.get("ce_id", ""),
        version=version_of(headers.get("ce_eventversion", "")),
        tenant=headers.get("ce_tenant", ""),
    )
    return read_body(kind, data, about, headers)


def at_version(kind: type[Event], body: bytes, version: int) -> bytes:
    """Return the JSON of a body brought from a version to that of its class.

    A class without upcasters reads what is older as it is.

    Raises:
        Unreadable: EVENT_TOO_NEW, NO_UPCASTER or UPCAST_FAILED.
    """
    if version == kind.milepost_spec.version or not _must_grow(kind, version):
        return body
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(
            "INVALID_BODY", f"it is no {kind.__name__}: no JSON ({type(error).__name__})"
        ) from None
    grown = brought_up(kind, found, version)
    return json.dumps(grown, ensure_ascii=False).encode(errors="surrogatepass")


def brought_up(kind: type[Event], body: Any, version: int | None) -> Any:
    """Return a body, parsed, brought from a version to that of its class.

    Args:
        version: None for the class's own.

    Raises:
        Unreadable: EVENT_TOO_NEW, NO_UPCASTER or UPCAST_FAILED.
    """
    if version is not None and _must_grow(kind, version):
        for n in range(version, kind.milepost_spec.version):
            body = _one_up(kind, n, body)
    return body


def _must_grow(kind: type[Event], version: int) -> bool:
    current = kind.milepost_spec.version
    if version > current:
        raise Unreadable(
            "EVENT_TOO_NEW",
            f"it is version {version} of {kind.milepost_spec.type}, and {kind.__name__} here knows {current}; deploy "
            "the newer class, then redrive",
        )
    return version < current and bool(kind.milepost_upcasters)


def _one_up(kind: type[Event], version: int, body: Any) -> dict[str, Any]:
    upcaster: Upcaster | None = kind.milepost_upcasters.get(version)
    if upcaster is None:
        raise Unreadable(
            "NO_UPCASTER", f"it is version {version} of {kind.milepost_spec.type}, which no upcaster takes"
        )
    place = f"the upcaster of {kind.__name__} from version {version}"
    try:
        if not isinstance(body, dict):
            raise TypeError("the body is no JSON object")
        found = upcaster(body)
        json.dumps(found)
    except Exception as error:  # the user's code may raise anything
        words = (
            type(error).__name__ if kind.milepost_spec.codec.secret else f"{type(error).__name__}: {error}"
        )
        raise Unreadable("UPCAST_FAILED", f"{place} raised {words}") from None
    if not isinstance(found, dict):
        raise Unreadable("UPCAST_FAILED", f"{place} returned {type(found).__name__}, not a dict")
    return found
