"""What waits for a person's answer and is in no run's row, as entries of `milepost worklist`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from rich.text import Text

from ..recovery.permissions import EVERYTHING
from .listing import Entry, first_line
from .output import clean, span, state_text
from .views.answers import answers
from .views.work import WorkRow

#: The kinds of these entries: what is proposed, and acts on many that a second person has to confirm.
KINDS = ("proposal", "bulk")
#: Of each, how it is decided at the command line; its id follows.
_DECIDES = {"proposal": "proposals accept|reject", "bulk": "bulk confirm|stop"}
#: Keys that every entry of the worklist has, and these have nothing for.
_EMPTY = (
    *("run", "run_state", "step", "undo_of", "tries", "in_doubt", "asked", "needed", "left", "roles"),
    *("generation", "params", "approved_by", "expires"),
)


async def waiting(
    connection: asyncpg.Connection[Any], kinds: Sequence[str], limit: int
) -> tuple[list[WorkRow], datetime]:
    """Return them, the oldest first, with the database's time.

    Args:
        kinds: Only these; all when empty.
        limit: At most so many of each.
    """
    now: datetime = await connection.fetchval("SELECT milepost.clock()")
    rows = await answers(connection, EVERYTHING, saga=None, limit=limit)
    wanted = [row for row in rows if not kinds or row.kind in kinds]
    return sorted(wanted, key=lambda row: row.since), now


def entry(row: WorkRow, now: datetime) -> Entry:
    """Return the entry for people."""
    cells = [
        Text(row.kind),
        Text(clean(row.title)),
        Text(""),
        state_text(row.state),
        Text(span(_age(row, now))),
        Text(clean(row.code or "")),
        Text(row.urgency.value),
        Text(clean(row.tenant)),
        Text(f"{_DECIDES[row.kind]} {_id(row)}"),
    ]
    return Entry(cells, clean(first_line(row.message)))


def item(row: WorkRow, now: datetime) -> dict[str, object]:
    """Return the entry with the keys that every entry of the worklist has."""
    return {
        **dict.fromkeys(_EMPTY),
        "kind": row.kind,
        "about": row.title,
        "id": _id(row),
        "tenant": row.tenant,
        "service": row.service,
        "iteration": "",
        "state": row.state,
        "code": row.code,
        "message": row.message,
        "since": row.since,
        "age": _age(row, now),
        "possible": row.possible,
        "risk": row.urgency.value,
    }


def _id(row: WorkRow) -> str:
    return row.id.partition(":")[2]


def _age(row: WorkRow, now: datetime) -> timedelta:
    return max(now - row.since, timedelta(0))
