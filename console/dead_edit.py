"""`milepost dead edit` and `milepost dead groups`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.text import Text

from ..inbox.edit_model import Edit
from ..inbox.editing import NewLetter
from ..recovery.letters import LetterFilter
from ..recovery.letters import edit_letter as edit_letter_of
from ..recovery.permissions import EVERYTHING
from ..schemas.errors import UsageError
from ..schemas.ids import SystemIds
from ..schemas.settings import max_event_bytes
from .dead_changes import follow
from .dead_store import Filter, keys
from .listing import Entry, first_line
from .options import Globals
from .output import clean, column, span
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason
from .views.letters import letter_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for.

    Attributes:
        value: File with the new value; "-" for stdin.
        set_headers: NAME=TEXT each.
        redrive: Have the new letter handled at once.
        wait: Longest wait for what becomes of it, in seconds; 0 for not waiting.
    """

    value: Path | None
    key: str | None
    set_headers: Sequence[str]
    drop_headers: Sequence[str]
    redrive: bool
    wait: float


async def edit_letter(given: Globals, n: int, wish: Wish, *, reason: str) -> None:
    """Make a new letter of one, and print its number.

    Raises:
        UsageError: MP601 for options that cannot be read, MP770 to MP772 for what cannot be an event.
        StateError: MP440, MP773 to MP775 when the letter cannot be edited.
        typer.Exit: 1 when the redrive failed again or nobody has carried it out in time.
    """
    require_reason(reason)
    change = Edit(
        value=None if wish.value is None else _read(wish.value),
        key=None if wish.key is None else _key(wish.key),
        headers=_headers(wish.set_headers, wish.drop_headers),
    )
    async with changing(given.database_url()) as connection:
        made = await edit_letter_of(
            connection,
            given.actor(),
            n,
            change,
            reason=reason,
            ids=SystemIds(),
            max_bytes=max_event_bytes(),
            redrive=wish.redrive,
        )
        _tell(given, n, made)
        if wish.redrive and made.behind is None and wish.wait:
            (outcome,) = await follow(given, connection, [made.n], wish.wait)
            if outcome.word != "RESOLVED":
                raise typer.Exit(FINDINGS)


def _tell(given: Globals, n: int, made: NewLetter) -> None:
    given.out.item(
        id=made.n,
        edited_from=n,
        event=made.event_id,
        status=made.status.value,
        behind=made.behind,
        changes=made.changes,
    )
    waits = f"; it waits behind letter {made.behind} of its key" if made.behind is not None else ""
    given.out.say(f"letter {n} stays as it was and is closed; letter {made.n} is the edited one{waits}")


def _read(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError("MP601", f"--value {path}: it cannot be read: {error.strerror}.") from error


def _key(text: str) -> bytes:
    """Read a record key as `dead list` shows it: text, or 0x… for bytes that are none."""
    return keys(text)[-1]


def _headers(given: Sequence[str], dropped: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(dropped)
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise UsageError("MP601", f"--header {one!r}: write NAME=TEXT.")
        found[name] = text
    return found


async def list_groups(given: Globals, wanted: Filter) -> None:
    """Print the causes of letters, the largest group first."""
    chosen = LetterFilter(
        statuses=wanted.statuses,
        topic=wanted.topic,
        code=wanted.code,
        keys=[] if wanted.key is None else keys(wanted.key),
        consumer=wanted.consumer,
        since=wanted.since,
    )
    async with reading(given.database_url()) as store:
        found = await letter_groups(store.connection, EVERYTHING, chosen, payloads=EVERYTHING)
    out = given.out
    if not found.groups:
        out.say("no open dead letters" if wanted.empty else "no such dead letters")
        return
    entries = []
    for group in found.groups[: wanted.limit]:
        out.item(**group.model_dump(mode="json"))
        assert found.now is not None
        texts = [
            str(group.amount),
            group.name,
            group.consumer,
            group.topic,
            group.code,
            span(found.now - group.first_at),
            span(found.now - group.last_at),
        ]
        entries.append(
            Entry([*(Text(clean(text)) for text in texts), Text("")], clean(first_line(group.cause)))
        )
    heads = ["letters", "cause", "consumer", "topic", "code", "first", "last"]
    right = {"letters", "first", "last"}
    out.listing([*(column(head, right=head in right) for head in heads), column("message")], entries)
    if found.cut or len(found.groups) > wanted.limit:
        out.note(f"of the youngest {found.letters} letters, the first {wanted.limit} causes")
