"""What the console signs: cookies, and the proof that a form is its own."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from itsdangerous import BadSignature, Signer, URLSafeTimedSerializer

_DIGEST: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}


def new_secret() -> str:
    """Draw 256 bits, as text that fits a cookie and a URL."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """Return what is stored of a secret that was drawn: nothing that could be guessed leads back to it."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def same(one: str, other: str) -> bool:
    """Compare secrets in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


class Signing:
    """Signs and reads what browsers keep for the console.

    Args:
        secret: The key; processes that stand for each other have the same.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._sessions = Signer(secret, salt="milepost.session", **_DIGEST)

    def session(self, token: str) -> str:
        """Return a session's token as its cookie holds it."""
        return self._sessions.sign(token).decode()

    def read_session(self, cookie: str) -> str | None:
        """Return the token of a cookie; None when it was not signed here."""
        try:
            return self._sessions.unsign(cookie).decode()
        except (BadSignature, UnicodeError):
            return None

    def csrf(self, subject: str) -> str:
        """Return the proof that a form was made for this session, or for this person behind a proxy."""
        return hmac.new(
            self._secret, f"milepost.csrf:{subject}".encode(errors="replace"), hashlib.sha256
        ).hexdigest()

    def seal(self, item: Any, salt: str) -> str:
        """Return an item of JSON as signed text."""
        return self._serializer(salt).dumps(item)

    def unseal(self, text: str, salt: str, *, seconds: int) -> Any:
        """Return what was sealed; None when it was not sealed here, or longer ago."""
        try:
            return self._serializer(salt).loads(text, max_age=seconds)
        except (BadSignature, UnicodeError):
            return None

    def _serializer(self, salt: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._secret, salt=f"milepost.{salt}", signer_kwargs=_DIGEST)
