"""What PostgreSQL can hold as text."""

from __future__ import annotations


def unstorable(text: str) -> bool:
    """Tell whether PostgreSQL text cannot hold this: U+0000 or a lone surrogate."""
    return "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)
