"""What probes have answered about a run and what recovery has decided, in `milepost runs show RUN --history`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from rich.text import Text

from ..streams.queries import Queries
from .listing import Entry, first_line
from .output import Output, clean, column

#: What an answer of a probe is called that settles nothing.
NOTHING = "NONE"


class Sql(Queries, file="looked.sql"):
    """Queries of this module."""

    looked_at: str


def looked_item(rows: Sequence[Any]) -> list[dict[str, object]]:
    """Return them as --json prints them."""
    names = ("step", "iteration", "at", "drift", "decision", "before", "after", "by", "reason")
    return [{name: row[name] for name in names} | {"evidence": json.loads(row["evidence"])} for row in rows]


def print_looked(out: Output, rows: Sequence[Any]) -> None:
    """Print them, the oldest first; nothing where there are none."""
    if not rows:
        return
    out.say("")
    heads = ["  looked", "what", "step", "answer", "then", "by"]
    out.listing([column(head) for head in heads], [_entry(row) for row in rows])


def _entry(row: Any) -> Entry:
    place = row["step"] + (f"#{row['iteration']}" if row["iteration"] else "")
    message = json.loads(row["evidence"]).get("message")
    cells = [
        Text(f"  {row['at'].astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"),
        Text(row["drift"] or "probe"),
        Text(clean(place)),
        Text("not known yet" if row["decision"] == NOTHING else clean(row["decision"])),
        Text(clean(row["after"])),
        Text(clean(row["by"])),
    ]
    why = ": ".join(part for part in (row["reason"], first_line(str(message or ""))) if part)
    return Entry(cells, clean(why))
