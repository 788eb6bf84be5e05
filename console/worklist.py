"""`milepost worklist`: what stands in front of a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ..schemas.errors import UsageError
from . import answering_rows, troubles
from .acts import Sql
from .listing import Entry, first_line, without_code
from .options import Globals
from .output import clean, column, span, state_text
from .store import reading

#: What an entry may be: a step, a transactional step, a wait, an undo, what waits for approval, a run without any of
#: them, a run whose version no process has, an act that waits for a second person, what is proposed, acts on many that
#: wait for a second person, or what stands still and is in front of nobody.
KINDS = (
    "step",
    "tx",
    "wait",
    "undo",
    "approval",
    "run",
    "version",
    "confirm",
    *answering_rows.KINDS,
    "trouble",
)


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


async def show_worklist(
    given: Globals, kinds: Sequence[str], *, limit: int, mine: frozenset[str] | None = None
) -> None:
    """Print what waits for a person, the oldest first, with the acts that are possible.

    Before it what stands still for other reasons and nobody is asked about: a dead worker, a relay that has stopped.

    Args:
        mine: Only what whoever acts may decide with these roles; None for everything.
    """
    who = None if mine is None else given.by()
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.worklist, list(kinds), limit, who, sorted(mine or ()), None, None, None)
        wanted = mine is None and (not kinds or "trouble" in kinds)
        found = troubles.troubles(await store.ages()) if wanted else []
        asked, now = await answering_rows.waiting(store.connection, kinds, limit if mine is None else 0)
    out = given.out
    for age in found:
        out.item(**troubles.item(age))
    for row in rows:
        out.item(**_item(row))
    for one in asked:
        out.item(**answering_rows.item(one, now))
    if not rows and not found and not asked:
        out.say("nothing of this kind waits for a person" if kinds else "nothing waits for a person")
        return
    columns = [column("kind"), column("run"), column("step"), column("state"), column("age", right=True)]
    out.listing(
        [*columns, column("code"), column("asks"), column("tenant"), column("possible")],
        [
            *map(troubles.entry, found),
            *map(_entry, rows),
            *(answering_rows.entry(one, now) for one in asked),
        ],
    )
    if len(rows) == limit:
        out.note(f"the oldest {limit}; --limit shows more")


_ACTS = {
    "undo": ["retry", "skip", "mark-succeeded"],
    "run": ["resume"],
    "version": ["resume"],
    "asked": ["approve", "reject"],
    "confirm": ["confirm", "decline"],
}


def possible(
    kind: str, run_state: str, cause: str | None, *, asked: bool = False, undo: bool = False
) -> list[str]:
    """Return the acts that an entry may be given; the state machine has the last word.

    Args:
        kind: One of KINDS.
        run_state: The run's state.
        cause: Why the run had been stopping before; None while it was going forward.
        asked: It waits for approval.
        undo: It is an undo.
    """
    if kind == "confirm":
        return [*_ACTS[kind]]
    if undo or kind == "undo":
        return [*_ACTS["asked"], "skip", "mark-succeeded"] if asked else [*_ACTS["undo"]]
    if asked or kind == "approval":
        acts = [*_ACTS["asked"]] if asked else ["retry"]
        acts += ["compensate"] if run_state == "MANUAL_REQUIRED" else []
        return acts + (["cancel"] if cause is None else [])
    if kind == "version":
        return [*_ACTS[kind]]
    acts = [*_ACTS.get(kind, ["retry", "skip", "mark-succeeded"])]
    if run_state != "COMPENSATION_FAILED":
        acts.append("compensate")
        acts += ["cancel"] if cause is None else []
    return acts


def _possible(row: Any) -> list[str]:
    asked, undo = row["question"] is not None, row["undo_of"] is not None
    return possible(row["kind"], row["run_state"], row["cause"], asked=asked, undo=undo)


def _question(row: Any) -> dict[str, Any] | None:
    """Return what is asked, with how many more have to approve; None where nothing is."""
    if row["question"] is None:
        return None
    asked: dict[str, Any] = json.loads(row["question"])
    return asked | {"left": asked["needed"] - len(asked["given"])}


def _asks(row: Any) -> str:
    asked = _question(row)
    if asked is None:
        return ""
    until = f", until {row['wake_at']:%Y-%m-%d %H:%MZ}" if row["state"] == "WAITING" else ""
    roles = f" of {', '.join(asked['roles'])}" if asked["roles"] else ""
    return f"{asked['risk']}, {asked['left']} more{roles}{until}"


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
        Text(clean(_asks(row))),
        Text(clean(row["tenant"])),
        Text(asked),
    ]
    return Entry(cells, clean(first_line(without_code(row["code"], row["message"] or ""))))


def _item(row: Any) -> dict[str, object]:
    asked = _question(row) or {}
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
        "risk": asked.get("risk"),
        "needed": asked.get("needed"),
        "left": asked.get("left"),
        "roles": asked.get("roles"),
        "generation": asked.get("generation"),
        "params": asked.get("params"),
        "approved_by": [one["by"] for one in asked["given"]] if asked else None,
        "expires": row["wake_at"] if asked and row["state"] == "WAITING" else None,
    }
