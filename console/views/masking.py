"""What a reader may see of a payload. Pure.

What is called like a secret is never shown. Whoever may not read payloads sees how they are built, and no value.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from ...schemas.masking import MASK

#: Names of fields that hold what opens something, as far as names tell. Words are parted at _, -, and capitals.
_SECRET = frozenset(
    {
        *("password", "passwd", "passphrase", "pwd", "pin", "cvv", "cvc", "otp"),
        *("secret", "token", "apikey", "authorization", "cookie", "credential", "credentials", "signature"),
    }
)
_SECRET_PAIRS = frozenset(
    {
        ("api", "key"),
        ("private", "key"),
        ("access", "key"),
        ("secret", "key"),
        ("session", "id"),
        ("card", "number"),
    }
)
#: Names that end in these words tell about secrets, and are none: token_count, tokens are counted.
_ABOUT = frozenset({"count", "limit", "budget", "used", "type", "expires", "at"})
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
#: Deepest nesting that is shown.
_DEEPEST = 50


def is_secret(name: str) -> bool:
    """Tell whether a field of that name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    joined = "".join(words)
    return (
        any(word in _SECRET for word in words)
        or joined in _SECRET
        or any(pair in _SECRET_PAIRS for pair in pairwise(words))
    )


def masked(value: Any, *, readable: bool) -> Any:
    """Return a value of JSON as a reader may see it.

    Args:
        readable: Whether the reader may read payloads; else only names, and how many there are, are shown.
    """
    return _masked(value, readable, 0)


def _masked(value: Any, readable: bool, depth: int) -> Any:
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        return MASK
    if isinstance(value, dict):
        return {
            name: MASK if is_secret(str(name)) and one is not None else _masked(one, readable, depth + 1)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_masked(one, readable, depth + 1) for one in value]
    return value if readable or value is None or isinstance(value, bool) else MASK
