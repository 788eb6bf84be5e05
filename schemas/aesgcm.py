"""Bodies of events encrypted with AES-256-GCM, so that outbox, topic and dead letters hold nothing readable.

A record's value is nonce (12 bytes), ciphertext and tag (16 bytes). The additional data binds it to codec, key, type,
id, version and tenant, so that a body moved to another event is refused.

Source: NIST SP 800-38D. Nonces are random (section 8.2.2), which is safe for 2^32 events of one key (section 8.3):
change the key before that.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from .codecs import CODEC_HEADER, KEY_HEADER, CodecContext, Coded, Unreadable
from .errors import DefinitionError, UsageError
from .ids import random_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Where keys come from that the code does not give.
VARIABLE = "MILEPOST_ENCRYPTION_KEYS"
_NONCE, _TAG, _KEY = 12, 16, 32
_LONGEST_NAME = 100

Keys: TypeAlias = "Mapping[str, bytes]"


class AesGcm:
    """Codec that encrypts; name it on the class: `class Paid(Event, …, codec=AesGcm())`. Needs milepost[encryption].

    The first key writes, all of them read. To change the key put a new one in front, and take the old one away when
    nothing that it wrote is left: outbox, topic, dead letters.

    Args:
        keys: Key (32 bytes) by name, or a function that returns them when they are first needed. None reads
            MILEPOST_ENCRYPTION_KEYS: "name:base64,name:base64".
        reads_plain: Also take records that are not encrypted, for the time of changing over. Whoever can write to the
            topic could then send plain ones.

    Raises:
        DefinitionError: MP347 when the package cryptography is missing.
        UsageError: MP346 when keys given here are wrong; those of a function or the environment are looked at when they
            are first needed.
    """

    name = "aes-256-gcm"
    secret = True

    def __init__(self, keys: Keys | Callable[[], Keys] | None = None, *, reads_plain: bool = False) -> None:
        self.reads_plain = reads_plain
        self._source: Callable[[], Keys] = from_environment
        self._ring: dict[str, AESGCM] | None = None
        self._digest_keys: tuple[bytes, ...] = ()
        _cipher()
        if callable(keys):
            self._source = keys
        elif keys is not None:
            self._take(keys)

    def __repr__(self) -> str:
        return f"<AesGcm {', '.join(self._ring) if self._ring else 'keys not read yet'}>"

    def check(self) -> None:
        """Look at the keys.

        Raises:
            UsageError: MP346 when they are missing or wrong.
        """
        self._keys()

    def encode(self, body: bytes, about: CodecContext) -> Coded:
        """Encrypt with the first key, under a fresh nonce.

        Raises:
            UsageError: MP346 when the keys are missing or wrong.
        """
        key_id, cipher = next(iter(self._keys().items()))
        nonce = random_bytes(_NONCE)
        sealed = nonce + cipher.encrypt(nonce, body, bound(key_id, about))
        return Coded(sealed, "application/octet-stream", {CODEC_HEADER: self.name, KEY_HEADER: key_id})

    def digests(self, data: bytes) -> Sequence[bytes]:
        """Return HMAC-SHA256 of the data under each key: a plain hash of few possible bodies could be guessed back.

        Raises:
            UsageError: MP346 when the keys are missing or wrong.
        """
        self._keys()
        return [hmac.digest(key, data, "sha256") for key in self._digest_keys]

    def decode(self, coded: Coded, about: CodecContext) -> bytes:
        """Decrypt with the key that the record names.

        Raises:
            Unreadable: KEY_UNKNOWN when this process does not have it, DECRYPT_FAILED when the bytes or what they are
                bound to were changed.
            UsageError: MP346 when this process has no keys at all.
        """
        key_id = coded.headers.get(KEY_HEADER, "")
        cipher = self._keys().get(key_id)
        if cipher is None:
            raise Unreadable(
                "KEY_UNKNOWN",
                f"it is encrypted with the key {key_id[:_LONGEST_NAME]!r}, which this process does not have",
            )
        nonce, sealed = coded.data[:_NONCE], coded.data[_NONCE:]
        try:
            if len(sealed) < _TAG:
                raise ValueError
            return cipher.decrypt(nonce, sealed, bound(key_id, about))
        except Exception:
            raise Unreadable(
                "DECRYPT_FAILED",
                f"the key {key_id!r} does not open it: its bytes, type, id, version or tenant were changed, or the key "
                "has another value here than where it was written",
            ) from None

    def _keys(self) -> dict[str, AESGCM]:
        if self._ring is None:
            self._take(self._source())
        assert self._ring is not None
        return self._ring

    def _take(self, keys: Keys) -> None:
        ring = _ring(keys)
        self._digest_keys = tuple(hmac.digest(key, b"milepost.digest", "sha256") for key in keys.values())
        self._ring = ring  # last: other threads look at it


def bound(key_id: str, about: CodecContext) -> bytes:
    """Return the additional data of an event: its parts, each with its length in bytes before it."""
    parts = (AesGcm.name, key_id, about.type, about.event_id, str(about.version), about.tenant)
    return b"".join(
        b"%d:%s" % (len(part), part) for part in (text.encode(errors="surrogatepass") for text in parts)
    )


def from_environment() -> Keys:
    """Return the keys of MILEPOST_ENCRYPTION_KEYS, in their order.

    Raises:
        UsageError: MP346, which never shows a key.
    """
    text = os.environ.get(VARIABLE, "")
    found: dict[str, bytes] = {}
    for number, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        name, colon, value = entry.partition(":")
        if not colon:
            raise _wrong(f"entry {number} of {VARIABLE} has no name before a colon")
        if name in found:
            raise _wrong(f"{VARIABLE} names the key {name!r} twice")
        try:
            found[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _wrong(f"the key {name!r} of {VARIABLE} is no base64") from None
    return found


def _ring(keys: Keys) -> dict[str, AESGCM]:
    if not keys:
        raise _wrong(f"there is none: {VARIABLE} is not set, and AesGcm(...) was given none")
    for name, key in keys.items():
        if not (name and name.isascii() and name.isprintable() and len(name) <= _LONGEST_NAME):
            raise _wrong("the name of a key is not 1 to 100 printable ASCII characters")
        if not isinstance(key, bytes) or len(key) != _KEY:
            raise _wrong(f"the key {name!r} is not {_KEY} bytes long")
    return {name: _cipher()(key) for name, key in keys.items()}


def _wrong(what: str) -> UsageError:
    return UsageError(
        "MP346",
        f'encryption keys: {what}. Set {VARIABLE}="name:base64 of 32 random bytes", the writing key first, or pass '
        "AesGcm({name: key}).",
    )


def _cipher() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise DefinitionError(
            "MP347",
            "AesGcm: the package cryptography is not installed. Install milepost[encryption].",
        ) from error
    return AESGCM
