"""The text of a drawing's boxes, cut and wrapped to columns of a fixed-width font."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from .drawing import Box

#: Fewest and most characters of a box's lines; the fewest hold every state.
NARROW: Final = 26
WIDE: Final = 36
#: Fewest characters of the lines above the flow.
HEADLINE: Final = 52


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a box; `text` may be cut."""

    text: str
    style: Literal["name", "status", "fact"]


def columns_of(text: str) -> int:
    """Return how many columns a text takes; wide characters take two (Unicode Annex 11)."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def cut(text: str, columns: int) -> str:
    """Shorten a text to so many columns, in its middle: names differ at both ends."""
    if columns_of(text) <= columns:
        return text
    head, tail = list(text), list[str]()
    half = (columns - 1) // 2
    while columns_of("".join(tail)) < half:
        tail.insert(0, head.pop())
    while columns_of("".join(head)) + columns_of("".join(tail)) + 1 > columns:
        head.pop()
    return "".join(head) + "…" + "".join(tail)


def wrap(words: Iterable[str], columns: int, joint: str = " ") -> list[str]:
    """Put words into lines of at most so many columns; a longer word is cut."""
    lines: list[str] = []
    for word in words:
        short = cut(word, columns)
        if lines and columns_of(lines[-1] + joint + short) <= columns:
            lines[-1] += joint + short
        else:
            lines.append(short)
    return lines


def lines_of(box: Box, columns: int) -> list[Line]:
    """Return the text of a box."""
    status = (("now: " if n == 0 and box.current else "") + word for n, word in enumerate(box.status))
    return [
        Line(cut(box.name, columns), "name"),
        *(Line(text, "status") for text in wrap(status, columns, ", ")),
        *(Line(text, "fact") for text in wrap(box.facts, columns, ", ")),
    ]


def common_columns(boxes: Iterable[Box]) -> int:
    """Return how many columns boxes of one width need."""
    longest = (columns_of(text) for box in boxes for text in (box.name, *box.facts, *box.status))
    return min(WIDE, max(NARROW, *longest, 0))
