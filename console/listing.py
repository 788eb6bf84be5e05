"""Rows under aligned heads, where long texts stand on lines of their own instead of in narrow columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

#: Longest message that people are shown, in characters; --json has all of it.
LONGEST = 200
_GAP = "  "
_BELOW = " " * 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A row.

    Attributes:
        cells: One for each column; the last stands below when it does not fit.
        below: What stands below in any case.
    """

    cells: Sequence[Text]
    below: str = ""


def first_line(message: str) -> str:
    """Cut a message for people: its first line that says something, at most LONGEST characters."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST and line == message.strip() else f"{line[:LONGEST].rstrip()} …"


def without_code(code: str | None, message: str) -> str:
    """Take the code off the beginning of a message, where it is shown beside it."""
    rest = message.removeprefix(code) if code else message
    return rest.lstrip(" :") if rest != message and rest[:1] in {"", " ", ":"} else message


def lay_out(columns: Sequence[Mapping[str, Any]], entries: Sequence[Entry], width: int) -> list[Text]:
    """Return the lines of a listing; columns that are empty in every row are left out.

    Args:
        columns: As `output.column` describes them.
        width: Of the terminal, in columns.
    """
    last = len(columns) - 1
    kept = [n for n in range(last) if any(len(entry.cells[n]) for entry in entries)]
    widths = {
        n: max(len(columns[n]["header"]), *(entry.cells[n].cell_len for entry in entries)) for n in kept
    }
    room = width - sum(widths.values()) - len(_GAP) * len(kept)
    lines: list[Text] = []
    fits = [entry.cells[last].cell_len <= room for entry in entries]
    head = [Text(columns[n]["header"]) for n in kept]
    if any(here and len(entry.cells[last]) for here, entry in zip(fits, entries, strict=True)):
        head.append(Text(columns[last]["header"]))
    lines.append(_line(head, [(widths[n], columns[n]["justify"]) for n in kept], bold=True))
    for here, entry in zip(fits, entries, strict=True):
        cells = [entry.cells[n] for n in kept] + ([entry.cells[last]] if here else [])
        lines.append(_line(cells, [(widths[n], columns[n]["justify"]) for n in kept]))
        for text in ("" if here else entry.cells[last].plain, entry.below):
            lines += [Text(_BELOW + part, style="dim") for part in _wrapped(text, width)]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width - len(_BELOW)), break_on_hyphens=False)


def _line(cells: Sequence[Text], places: Sequence[tuple[int, str]], *, bold: bool = False) -> Text:
    line = Text(style="bold" if bold else "")
    for n, cell in enumerate(cells):
        padding = " " * (places[n][0] - cell.cell_len) if n < len(places) else ""
        right = n < len(places) and places[n][1] == "right"
        line = Text.assemble(line, padding if right else "", cell, "" if right else padding, _GAP)
        line.style = "bold" if bold else ""
    line.rstrip()
    return line
