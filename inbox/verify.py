"""Is a webhook genuine? Standard Webhooks and plain HMAC signatures; pure: the instant is passed in.

A secret is in no text that these classes make: not in an error, not in a representation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from ..schemas.errors import DefinitionError

#: Standard Webhooks lets implementations choose, and its own libraries take five minutes.
TOLERANCE = timedelta(minutes=5)
#: Signatures of one request that are looked at; a rotation needs two.
MOST_SIGNATURES = 16


class SignatureRefused(Exception):
    """A webhook is not genuine, or too old to be taken for it; the text says why and holds no secret."""


class Verifier(Protocol):
    """How a provider proves that a webhook is its own."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        """Return when the request is genuine.

        Args:
            headers: By lower case name, as latin-1 text.
            body: The bytes as they came; a body that was parsed and written again no longer fits its signature.
            now: The receiver's time.

        Raises:
            SignatureRefused: It is not.
        """
        ...


class StandardWebhooks:
    """Signatures by https://www.standardwebhooks.com: webhook-id, webhook-timestamp, webhook-signature (v1).

    Args:
        secrets: "whsec_" and base64, the present one and, while they are rotated, the former one too.
        tolerance: How far the timestamp may be from the receiver's clock, either way.

    Raises:
        DefinitionError: MP455 without a secret, or for one that is no base64.
    """

    def __init__(self, *secrets: str, tolerance: timedelta = TOLERANCE) -> None:
        self._keys = [_standard_key(secret) for secret in secrets]
        self._tolerance = tolerance
        if not self._keys:
            raise DefinitionError("MP455", 'StandardWebhooks(): no secret. Pass "whsec_…" from the provider.')

    def __repr__(self) -> str:
        return f"StandardWebhooks({len(self._keys)} secrets)"

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        """See `Verifier.verify`."""
        event_id = _header(headers, "webhook-id")
        timestamp = _header(headers, "webhook-timestamp")
        signatures = _header(headers, "webhook-signature")
        _check_time(timestamp, now, self._tolerance)
        signed = f"{event_id}.{timestamp}.".encode("latin-1", "replace") + body
        given = [
            _decoded(text, "base64")
            for version, _, text in (part.partition(",") for part in signatures.split())
            if version == "v1"
        ]
        _require(self._keys, signed, "sha256", given)


class HmacSignature:
    """An HMAC over the body in a header, as most providers have it.

    GitHub: `HmacSignature(secret, header="x-hub-signature-256", prefix="sha256=")`.
    Stripe: `HmacSignature(secret, header="stripe-signature", timestamp_field="t", signature_field="v1")`.
    Slack: `HmacSignature(secret, header="x-slack-signature", prefix="v0=",
    timestamp_header="x-slack-request-timestamp", signed="v0:{timestamp}:{body}")`.

    Args:
        secrets: The present one and, while they are rotated, the former one too.
        header: Where the signature is.
        hash: Hash of the HMAC.
        encoding: How the signature is written.
        prefix: Text before it.
        timestamp_header: Where the time in seconds since 1970 is, when it is signed too.
        timestamp_field: Its name in a header of the form "t=…,v1=…"; needs signature_field.
        signature_field: Name of the signature there; it may be there several times.
        signed: What is signed; default "{timestamp}.{body}" with a timestamp, else "{body}".
        tolerance: How far the timestamp may be from the receiver's clock, either way. Without a timestamp an old
            request can be sent again for ever; the event id then still keeps it from being taken twice.

    Raises:
        DefinitionError: MP455 without a secret, or when the options do not go together.
    """

    def __init__(
        self,
        *secrets: str | bytes,
        header: str,
        hash: Literal["sha1", "sha256", "sha384", "sha512"] = "sha256",
        encoding: Literal["hex", "base64"] = "hex",
        prefix: str = "",
        timestamp_header: str | None = None,
        timestamp_field: str | None = None,
        signature_field: str | None = None,
        signed: str | None = None,
        tolerance: timedelta = TOLERANCE,
    ) -> None:
        self._keys = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
        self._header = header.lower()
        self._hash = hash
        self._encoding: Literal["hex", "base64"] = encoding
        self._prefix = prefix
        self._timestamp_header = timestamp_header.lower() if timestamp_header else None
        self._timestamp_field = timestamp_field
        self._signature_field = signature_field
        self._tolerance = tolerance
        timed = bool(timestamp_header or timestamp_field)
        self._signed = signed or ("{timestamp}.{body}" if timed else "{body}")
        if problem := self._problem(timed):
            raise DefinitionError("MP455", f"HmacSignature(header={header!r}): {problem}")

    def _problem(self, timed: bool) -> str:
        if not self._keys or not all(self._keys):
            return "no secret, or an empty one. Pass the one that the provider shows."
        if self._timestamp_field and not self._signature_field:
            return "timestamp_field= without signature_field=. Name both fields of the header."
        if self._signed.count("{body}") != 1:
            return "signed= must hold {body} once."
        if ("{timestamp}" in self._signed) != timed:
            return "signed= holds {timestamp} if and only if timestamp_header= or timestamp_field= says where it is."
        return ""

    def __repr__(self) -> str:
        return f"HmacSignature(header={self._header!r}, {len(self._keys)} secrets)"

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        """See `Verifier.verify`."""
        value = _header(headers, self._header)
        timestamp, texts = self._parts(headers, value)
        if timestamp is not None:
            _check_time(timestamp, now, self._tolerance)
        before, _, after = self._signed.replace("{timestamp}", timestamp or "").partition("{body}")
        given = [
            _decoded(text.removeprefix(self._prefix), self._encoding)
            for text in texts
            if text.startswith(self._prefix)
        ]
        _require(self._keys, before.encode() + body + after.encode(), self._hash, given)

    def _parts(self, headers: Mapping[str, str], value: str) -> tuple[str | None, Sequence[str]]:
        """Return the timestamp, if it is signed, and the signatures."""
        timestamp = _header(headers, self._timestamp_header) if self._timestamp_header else None
        if self._signature_field is None:
            return timestamp, [value.strip()]
        fields = [
            (name.strip(), text) for name, _, text in (part.partition("=") for part in value.split(","))
        ]
        if self._timestamp_field is not None:
            found = [text for name, text in fields if name == self._timestamp_field]
            if len(found) != 1:
                raise SignatureRefused(f"header {self._header} names no single time")
            timestamp = found[0]
        return timestamp, [text.strip() for name, text in fields if name == self._signature_field]


def _standard_key(secret: str) -> bytes:
    text = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise DefinitionError(
            "MP455",
            'StandardWebhooks(): a secret is empty or no base64. It is "whsec_" and base64, as the provider shows it.',
        ) from None
    return key


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise SignatureRefused(f"header {name} is missing")
    return value


def _check_time(text: str, now: datetime, tolerance: timedelta) -> None:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise SignatureRefused("its timestamp is no number of seconds")
    ahead = int(text) - now.timestamp()
    if abs(ahead) > tolerance.total_seconds():
        raise SignatureRefused(f"its timestamp is too {'far ahead' if ahead > 0 else 'old'}")


def _decoded(text: str, encoding: Literal["hex", "base64"]) -> bytes:
    """Return the bytes of a signature; none for text that is none."""
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def _require(keys: Iterable[bytes], signed: bytes, hash: str, given: Sequence[bytes]) -> None:
    """Compare every signature with every key's in constant time."""
    if not given:
        raise SignatureRefused("it carries no signature of the expected form")
    wanted = [hmac.new(key, signed, getattr(hashlib, hash)).digest() for key in keys]
    matches = [hmac.compare_digest(one, other) for one in wanted for other in given[:MOST_SIGNATURES]]
    if not any(matches):
        raise SignatureRefused("no signature fits")
