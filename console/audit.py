"""`milepost audit list` and `milepost audit verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import typer
from rich.text import Text

from ..recovery.auditing import AuditEntry, AuditFilter, entries
from ..recovery.permissions import scope_of
from ..recovery.verifying import read_head, verify
from ..schemas.errors import UsageError
from .filters import read_since
from .listing import Entry, first_line
from .model import run_reference
from .options import Globals
from .output import clean, column, rfc3339, span
from .problems import FINDINGS
from .store import changing, reading

_KINDS, _OUTCOMES = ("PERSON", "SYSTEM", "AGENT"), ("DONE", "HELD", "REFUSED")
_STYLES = {"REFUSED": "red", "HELD": "yellow", "DONE": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options of `audit list`, as they were given."""

    since: str | None
    actor: str | None
    kind: str | None
    act: str | None
    outcome: str | None
    run: str | None


async def list_entries(given: Globals, choice: Choice, *, limit: int) -> None:
    """Print entries, the youngest first.

    Raises:
        UsageError: MP601 for an option that cannot be read, MP605, MP606 for the run's name.
        StateError: MP604 when there is no such run.
    """
    actor = given.actor()
    async with reading(given.database_url()) as store:
        run = None if choice.run is None else await store.find(run_reference(choice.run))
        wanted = AuditFilter(
            since=None if choice.since is None else read_since(choice.since),
            actor=choice.actor,
            kind=_one_of("--kind", choice.kind, _KINDS),
            act=None if choice.act is None else choice.act.strip().lower(),
            outcome=_one_of("--outcome", choice.outcome, _OUTCOMES),
            run=run,
        )
        found = await entries(store.connection, scope_of(actor), wanted, limit=limit)
    for one in found:
        given.out.item(**asdict(one), about=one.about)
    if not found:
        given.out.say("no entry fits; `milepost audit list` shows those there are")
        return
    heads = [column(name) for name in ("at", "actor", "act", "outcome", "about", "change")]
    given.out.listing(heads, [_line(one) for one in found])
    if len(found) == limit:
        given.out.note(f"the youngest {limit}; --limit shows more")


def _one_of(option: str, text: str | None, known: tuple[str, ...]) -> str | None:
    found = None if text is None else text.strip().upper()
    if found is not None and found not in known:
        words = ", ".join(known).lower()
        raise UsageError("MP601", f"{option} {text}: there is no such one. There are: {words}.")
    return found


def _line(one: AuditEntry) -> Entry:
    about = " ".join(filter(None, (one.about, one.step)))
    before, after = _values(one.before), _values(one.after)
    words = str(one.evidence.get("refused", "")) if one.outcome == "REFUSED" else ""
    actor = one.actor if one.kind == "PERSON" else f"{one.actor} ({one.kind.lower()})"
    cells = [
        Text(rfc3339(one.at.replace(microsecond=0))),
        Text(clean(actor)),
        Text(clean(one.act)),
        Text(one.outcome, style=_STYLES[one.outcome]),
        Text(clean(first_line(about))),
        Text(clean(first_line(" → ".join(filter(None, (before, after)))))),
    ]
    return Entry(cells, clean(first_line(": ".join(filter(None, (words, one.reason))))))


def _values(state: Mapping[str, object]) -> str:
    """Write a state for people: words speak for themselves, numbers need their names."""
    return ", ".join(
        value if isinstance(value, str) else f"{name} {value}"
        for name, value in state.items()
        if value is not None
    )


async def verify_chain(given: Globals, head: str | None) -> None:
    """Go along the chain, and tell whether it is whole.

    Raises:
        UsageError: MP665 for a head that is none.
        typer.Exit: 1 when an entry was changed, removed or inserted.
    """
    kept = None if head is None else read_head(head)
    async with changing(given.database_url()) as connection:
        found = await verify(connection, head=kept)
    broken = found.broken
    given.out.item(
        ok=broken is None,
        entries=found.entries,
        gone=found.gone,
        unsealed=found.unsealed,
        oldest_unsealed=found.oldest,
        head=found.head,
        broken=None if broken is None else asdict(broken),
    )
    waits = ""
    if found.unsealed and found.oldest is not None:
        waits = f"; {found.unsealed} not sealed yet (the oldest for {span(found.oldest)})"
    if broken is not None:
        given.out.say(f"chain broken: {broken.text}; {_entries(found.entries)} before it whole{waits}")
        raise typer.Exit(FINDINGS)
    gone = f", {found.gone} gone with their months" if found.gone else ""
    given.out.say(f"chain ok, {_entries(found.entries)}{gone}{waits}")
    if found.head is not None:
        given.out.say(f"head {found.head}")


def _entries(amount: int) -> str:
    return "1 entry" if amount == 1 else f"{amount} entries"
