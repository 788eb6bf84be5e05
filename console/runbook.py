"""`milepost runbook`: what to do about a drift, offline."""

from __future__ import annotations

from ..recovery.model import Drift
from ..recovery.runbooks import Runbook, runbook, runbooks
from ..schemas.errors import UsageError
from .options import Globals
from .output import column


def read_drift(text: str) -> Drift:
    """Read the name of a drift, in whatever case, with '-' or '_'.

    Raises:
        UsageError: MP601 naming those there are.
    """
    try:
        return Drift(text.strip().upper().replace("-", "_"))
    except ValueError:
        known = ", ".join(drift.value for drift in Drift)
        raise UsageError("MP601", f"DRIFT {text}: there is no such drift. There are: {known}.") from None


def show_runbook(given: Globals, name: str | None) -> None:
    """Print one runbook; without a name, list all."""
    out = given.out
    if name is None:
        for book in runbooks():
            out.item(**_item(book))
        out.table([column("drift"), column("it is")], [[book.drift.value, book.title] for book in runbooks()])
        return
    book = runbook(read_drift(name))
    out.item(**_item(book))
    out.page(page(book))


def page(book: Runbook) -> str:
    """Return a runbook as one page of Markdown."""
    parts = [f"# {book.drift.value}: {book.title}", book.symptom, "## Look at", _list(book.checks)]
    parts += ["## Reach", book.reach, "## By itself", book.automatic, "## By hand", _list(book.manual)]
    parts += ["## Taking it back", book.rollback, "## Next time", book.prevention, book.body]
    return "\n\n".join(parts)


def _list(lines: tuple[str, ...]) -> str:
    return "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1))


def _item(book: Runbook) -> dict[str, object]:
    return {
        "drift": book.drift.value,
        "title": book.title,
        "symptom": book.symptom,
        "checks": list(book.checks),
        "reach": book.reach,
        "automatic": book.automatic,
        "manual": list(book.manual),
        "rollback": book.rollback,
        "prevention": book.prevention,
        "safe": [act.value for act in book.safe],
        "body": book.body,
    }
