"""What PostgreSQL can hold as text."""

from __future__ import annotations

#: Most that the texts of one index row may take together, in bytes: PostgreSQL takes 2,704 with its own.
INDEXED = 2_500


def too_long_to_index(*texts: str) -> bool:
    """Tell whether texts are too long, in bytes, to be one key of an index."""
    return sum(len(text.encode(errors="surrogatepass")) for text in texts) > INDEXED


def unstorable(text: str) -> bool:
    """Tell whether PostgreSQL text cannot hold this: U+0000 or a lone surrogate."""
    if "\x00" in text:
        return True
    # Nearly all names are ASCII, and Python knows that without looking at each character.
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def version_of(text: str) -> int:
    """Return the version that a header names: 1 for none, 0 for what is no number, which no upcaster takes."""
    if not text:
        return 1
    if not (text.isascii() and text.isdigit()):
        return 0
    return int(text) if len(text) < 9 else 999_999_999
