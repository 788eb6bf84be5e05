"""What PostgreSQL can hold as text."""

from __future__ import annotations


def unstorable(text: str) -> bool:
    """Tell whether PostgreSQL text cannot hold this: U+0000 or a lone surrogate."""
    if "\x00" in text:
        return True
    # Nearly all names are ASCII, and Python knows that without looking at each character.
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
