"""`milepost signals list`: awaited events that came, and whether a wait has taken them."""

from __future__ import annotations

from typing import Any

from ..streams.queries import Queries
from .options import Globals
from .output import column, span, state_text
from .store import reading

_STYLES = {"unmatched": "yellow", "expired": "red", "matched": "green"}


class Sql(Queries, file="signals.sql"):
    """Queries of this command."""

    list_signals: str


async def list_signals(given: Globals, *, unmatched: bool, type: str | None, limit: int) -> None:
    """Print signals: unmatched ones wait for a saga to wait for them until they expire."""
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.list_signals, unmatched, type, limit)
    out = given.out
    for row in rows if out.as_json else ():
        out.item(**_item(row))
    if not rows:
        out.say("no such signals" if unmatched or type else "no signals yet")
        return
    out.table(
        [
            column("type"),
            column("key"),
            column("state"),
            column("age", right=True),
            column("expires", right=True),
            column("run"),
            column("tenant"),
        ],
        [_row(row) for row in rows],
    )
    if len(rows) == limit:
        out.note(f"the youngest {limit}; --limit shows more")


def state_of(row: Any) -> str:
    """Say what became of a signal: matched, unmatched, or expired, which never matches any more."""
    if row["matched_at"] is not None:
        return "matched"
    return "unmatched" if row["expires_at"] > row["now"] else "expired"


def _run(row: Any) -> str:
    if row["run_id"] is None:
        return ""
    return f"{row['saga']}/{row['run_key']}" if row["saga"] else str(row["run_id"])


def _row(row: Any) -> list[Any]:
    state = state_of(row)
    left = f"in {span(row['expires_at'] - row['now'])}" if state == "unmatched" else ""
    words = state_text(state)
    words.stylize(_STYLES[state])
    return [
        row["type"],
        row["key"],
        words,
        span(row["now"] - row["received_at"]),
        left,
        _run(row),
        row["tenant"],
    ]


def _item(row: Any) -> dict[str, object]:
    return {
        "type": row["type"],
        "key": row["key"],
        "state": state_of(row),
        "tenant": row["tenant"],
        "id": row["id"],
        "source": row["source"],
        "event_id": row["event_id"],
        "age_s": (row["now"] - row["received_at"]).total_seconds(),
        "received_at": row["received_at"],
        "expires_at": row["expires_at"],
        "matched_at": row["matched_at"],
        "run": _run(row) or None,
    }
