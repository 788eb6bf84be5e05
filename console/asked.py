"""What persons have asked for about a run, in `milepost runs show RUN --history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from rich.text import Text

from .listing import Entry, first_line
from .output import Output, clean, column, state_text


def requests_item(rows: Sequence[Any]) -> list[dict[str, object]]:
    """Return requests as --json prints them."""
    names = ("id", "step", "iteration", "undo", "by", "reason", "at", "answer", "answered_at")
    return [
        {"act": _word(row), "outcome": row["state"].lower(), **{name: row[name] for name in names}}
        for row in rows
    ]


def print_requests(out: Output, rows: Sequence[Any]) -> None:
    """Print requests and their answers, the oldest first; nothing where there are none."""
    if not rows:
        return
    out.say("")
    heads = ["  asked", "act", "step", "by", "outcome", "answer"]
    out.listing([column(head) for head in heads], [_entry(row) for row in rows])


def _word(row: Any) -> str:
    return str(row["what"]).replace("_", "-")


def _entry(row: Any) -> Entry:
    undo = "" if row["undo"] is None else " with undo" if row["undo"] else " without undo"
    cells = [
        Text(f"  {row['at'].astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"),
        Text(f"{_word(row)}{undo}"),
        Text(clean(row["step"] or "")),
        Text(clean(row["by"])),
        state_text(row["state"]),
        Text(clean(first_line(row["answer"]) if row["answer"] else "nobody has carried it out yet")),
    ]
    return Entry(cells)
