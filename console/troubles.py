"""What stands still without standing in front of a person, as entries of the worklist."""

from __future__ import annotations

from datetime import timedelta

from rich.text import Text

from ..recovery.ages import Age, troubles
from .listing import Entry
from .output import clean, span

__all__ = ["entry", "item", "troubles"]


def entry(age: Age) -> Entry:
    """Return the entry of an age for people."""
    ref, _, step = age.first.partition(" ") if age.saga else (age.first, "", "")
    runbook = _runbook(age)
    cells = [
        Text("trouble"),
        Text(clean(ref or age.service)),
        Text(clean(step)),
        Text(age.level.upper(), style="bold red" if age.level == "error" else "yellow"),
        Text(span(_length(age))),
        Text(age.what),
        Text(""),
        Text(clean(age.tenant)),
        Text(f"runbook {runbook}" if runbook else ""),
    ]
    many = f"{age.amount}{' or more' if age.more else ''} {'row' if age.amount == 1 else 'rows'}"
    return Entry(cells, clean(f"{many}: {age.kind.words}; {age.kind.means}. {age.kind.fix}"))


def item(age: Age) -> dict[str, object]:
    """Return the entry of an age with the keys that every entry of the worklist has."""
    ref, _, step = age.first.partition(" ") if age.saga else ("", "", "")
    empty = (
        "run_state",
        "undo_of",
        "tries",
        "in_doubt",
        "asked",
        "risk",
        "needed",
        "left",
        "roles",
        "generation",
    )
    return {
        "kind": "trouble",
        "run": ref or None,
        "id": age.run or None,
        "tenant": age.tenant,
        "service": age.service,
        "step": step or None,
        "iteration": "",
        "state": age.level.upper(),
        "code": age.what,
        "message": f"{age.kind.words}; {age.kind.means}" if age.saga else f"{age.kind.words}: {age.first}",
        "since": None,
        "age": _length(age),
        "possible": [],
        "amount": age.amount,
        "severity": age.severity.value,
        "runbook": _runbook(age),
        "params": None,
        "approved_by": None,
        "expires": None,
        **dict.fromkeys(empty),
    }


def _length(age: Age) -> timedelta:
    return timedelta(seconds=age.seconds or 0.0)


def _runbook(age: Age) -> str | None:
    return None if age.kind.runbook is None else age.kind.runbook.value.lower()
