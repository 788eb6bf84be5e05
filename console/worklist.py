"""`milepost worklist`: what stands in front of a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ..schemas.errors import UsageError
from .acts import Sql
from .listing import Entry, first_line, without_code
from .options import Globals
from .output import clean, column, span, state_text
from .store import reading

#: What an entry may be: a step, a transactional step, a wait, an undo, or a run without any of them.
KINDS = ("step", "tx", "wait", "undo", "run")


def read_kinds(texts: Sequence[str]) -> list[str]:
    """Read --kind, in whatever case.

    Raises:
        UsageError: MP601 naming those there are.
    """
    found = [text.strip().lower() for text in texts]
    for kind in found:
        if kind not in KINDS:
            raise UsageError("MP601", f"--kind {kind}: there is no such kind. There are: {', '.join(KINDS)}.")
    return found


async def show_worklist(given: Globals, kinds: Sequence[str], *, limit: int) -> None:
    """Print what waits for a person, the oldest first, with the acts that are possible."""
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.worklist, list(kinds), limit)
    out = given.out
    for row in rows:
        out.item(**_item(row))
    if not rows:
        out.say("nothing of this kind waits for a person" if kinds else "nothing waits for a person")
        return
    columns = [column("kind"), column("run"), column("step"), column("state"), column("age", right=True)]
    out.listing(
        [*columns, column("code"), column("tenant"), column("possible")], [_entry(row) for row in rows]
    )
    if len(rows) == limit:
        out.note(f"the oldest {limit}; --limit shows more")


def possible(kind: str) -> tuple[str, ...]:
    """Return the acts that an entry of this kind may be given; the state machine has the last word."""
    return _POSSIBLE[kind]


_FORWARD = ("retry", "skip", "mark-succeeded", "compensate", "cancel")
_POSSIBLE = {
    "step": _FORWARD,
    "tx": _FORWARD,
    "wait": _FORWARD,
    "undo": ("retry", "skip", "mark-succeeded"),
    "run": ("resume", "compensate", "cancel"),
}


def _label(row: Any) -> str:
    if row["step"] is None:
        return ""
    return f"{row['step']}#{row['iteration']}" if row["iteration"] else str(row["step"])


def _entry(row: Any) -> Entry:
    asked = (
        f"{row['asked'].replace('_', '-')} asked for" if row["asked"] else ", ".join(possible(row["kind"]))
    )
    doubt = " (outcome in doubt)" if row["doubt"] else ""
    cells = [
        Text(row["kind"]),
        Text(clean(f"{row['saga']}/{row['key']}")),
        Text(clean(_label(row))),
        state_text(row["state"], doubt),
        Text(span(row["now"] - row["since"])),
        Text(clean(row["code"] or "")),
        Text(clean(row["tenant"])),
        Text(asked),
    ]
    return Entry(cells, clean(first_line(without_code(row["code"], row["message"] or ""))))


def _item(row: Any) -> dict[str, object]:
    return {
        "kind": row["kind"],
        "run": f"{row['saga']}/{row['key']}",
        "id": row["run_id"],
        "tenant": row["tenant"],
        "service": row["service"],
        "run_state": row["run_state"],
        "step": row["step"],
        "iteration": row["iteration"],
        "state": row["state"],
        "undo_of": row["undo_of"],
        "code": row["code"],
        "message": row["message"],
        "tries": row["attempt"],
        "in_doubt": row["doubt"],
        "since": row["since"],
        "age": row["now"] - row["since"],
        "possible": list(possible(row["kind"])),
        "asked": row["asked"],
    }
