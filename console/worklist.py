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

#: What an entry may be: a step, a transactional step, a wait, an undo, a run without any of them, or a run whose
#: version no process has.
KINDS = ("step", "tx", "wait", "undo", "run", "version")


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


def possible(kind: str, run_state: str, cause: str | None) -> list[str]:
    """Return the acts that an entry may be given; the state machine has the last word.

    Args:
        kind: One of KINDS.
        run_state: The run's state.
        cause: Why the run had been stopping before; None while it was going forward.
    """
    if kind == "version":
        return ["resume"]
    if kind == "undo":
        return ["retry", "skip", "mark-succeeded"]
    acts = ["resume"] if kind == "run" else ["retry", "skip", "mark-succeeded"]
    if run_state != "COMPENSATION_FAILED":
        acts.append("compensate")
        acts += ["cancel"] if cause is None else []
    return acts


def _possible(row: Any) -> list[str]:
    return possible(row["kind"], row["run_state"], row["cause"])


def _label(row: Any) -> str:
    if row["step"] is None:
        return ""
    return f"{row['step']}#{row['iteration']}" if row["iteration"] else str(row["step"])


def _entry(row: Any) -> Entry:
    acts = ", ".join(_possible(row))
    asked = f"{row['asked'].replace('_', '-')} asked for" if row["asked"] else acts
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
        "possible": _possible(row),
        "asked": row["asked"],
    }
