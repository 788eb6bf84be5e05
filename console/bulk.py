"""Acts on many: count, preview, confirm, then one outcome for each; and `milepost bulk`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

import asyncpg
import typer
from rich.text import Text

from ..recovery.bulk import Bulk, Sql, bulks, items_of, no_bulk
from ..recovery.bulk_beginning import begin
from ..recovery.bulk_carrying import carry, control, due_in, settle
from ..recovery.bulk_choosing import Preview, RunFilter, preview_runs
from ..recovery.permissions import EVERYTHING, scope_of
from ..schemas.errors import UsageError
from .filtered import Many
from .filters import read_since, read_states
from .findings import counted
from .listing import Entry, first_line
from .options import Globals
from .output import clean, column, rfc3339, state_text
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason

_PREVIEW = 5
#: Outcomes that leave nothing to do.
_GOOD = frozenset({"ACCEPTED", "RESOLVED", "IGNORED", "NOOP"})
#: Seconds between two words about the progress.
_SAY = 5.0
Tell = Callable[[Any], None]


async def act_on_many(
    given: Globals, what: str, many: Many, *, reason: str, arguments: Mapping[str, Any], wait: float
) -> None:
    """Do an act on all runs, or steps of runs, that a filter chooses, and print one outcome for each.

    Args:
        what: The act, as requests call it.
        wait: Longest wait for outcomes after the last one was begun, in seconds; 0 for not waiting.

    Raises:
        UsageError: MP601 without a reason or for a filter that cannot be read, MP426 when nobody can be asked.
        typer.Exit: 1 when some were refused or wait.
    """
    require_reason(reason)
    wanted = RunFilter(
        saga=many.saga,
        states=tuple(read_states(many.state or [])),
        code=None if many.code is None else many.code.strip().upper(),
        step=many.of_step,
        since=None if many.since is None else read_since(many.since),
    )
    actor = given.actor()
    word = what.replace("_", "-")
    async with changing(given.database_url()) as connection:
        preview = await preview_runs(connection, actor, what, wanted, limit=many.limit)
        if not preview.items:
            _nothing(given, preview)
            return
        show_preview(given, preview)
        noun = "run" if preview.items[0].step is None else "step"
        given.confirm(f"{word} of {counted(len(preview.items), noun)}. Go on?")
        id = await begin(connection, actor, preview, reason=reason, arguments=arguments, rate=many.rate)
        await follow(given, connection, id, wait=wait, tell=lambda row: tell_item(given, row))


def _nothing(given: Globals, preview: Preview) -> None:
    words = f"; {counted(preview.forbidden, 'more')} that you may not act on" if preview.forbidden else ""
    given.out.say(f"nothing fits that {preview.act.replace('_', '-')} could change{words}")


def show_preview(given: Globals, preview: Preview) -> None:
    """Say what would be begun: how many, with which codes, and the first of them."""
    codes = ", ".join(f"{amount} {code}" for code, amount in preview.codes.most_common(5) if code)
    more = ", as many as --limit says" if preview.more else ""
    given.out.note(f"{len(preview.items)}{more}" + (f" ({codes}):" if codes else ":"))
    for item in preview.items[:_PREVIEW]:
        given.out.note(f"  {item.subject} {item.code or ''}".rstrip())
    if len(preview.items) > _PREVIEW:
        given.out.note(f"  … and {len(preview.items) - _PREVIEW} more")
    if preview.forbidden:
        given.out.note(f"{preview.forbidden} more fit, which you may not act on; they are left out")
    if preview.second:
        given.out.note("some are CRITICAL: nothing is done before a second person has confirmed it")


async def follow(
    given: Globals, connection: asyncpg.Connection[Any], id: UUID, *, wait: float, tell: Tell
) -> list[str]:
    """Carry a bulk out beside whoever else does, and tell each item's outcome once.

    Returns:
        The outcomes that were told.

    Raises:
        typer.Exit: 1 when some were refused, failed again, or have no outcome yet.
    """
    (found,) = await bulks(connection, EVERYTHING, id=id)
    if found.state == "HELD":
        given.out.item(bulk=id, state="HELD", items=found.total)
        given.out.say(
            f"some are CRITICAL, so a second person has to confirm it: milepost bulk confirm {id} --reason …"
        )
        raise typer.Exit(FINDINGS)
    if not wait:
        given.out.item(bulk=id, state=found.state, items=found.total)
        given.out.say(
            f"bulk {id}: {found.total} asked for; `milepost serve` with the role upkeep carries it out."
        )
        return []
    words = await _outcomes(given, connection, found, wait, tell)
    (found,) = await bulks(connection, EVERYTHING, id=id)
    given.out.item(bulk=id, state=found.state, items=found.total, counts=dict(found.counts))
    given.out.say(f"bulk {id} {found.state}: {summary(found)}")
    if found.left or set(found.counts) - _GOOD:
        raise typer.Exit(FINDINGS)
    return words


async def _outcomes(
    given: Globals, connection: asyncpg.Connection[Any], bulk: Bulk, wait: float, tell: Tell
) -> list[str]:
    told, words = set[int](), list[str]()
    moved = said = time.monotonic()
    while True:
        while await carry(connection, bulk.id):
            moved = time.monotonic()
        await settle(connection, bulk.id)
        for row in await connection.fetch(Sql.done_since, bulk.id, sorted(told)):
            told.add(row["n"])
            words.append(row["outcome"])
            tell(row)
            moved = time.monotonic()
        pause = await due_in(connection, bulk.id)
        now = time.monotonic()
        if len(told) == bulk.total or (pause is None and now - moved >= wait):
            return words
        if now - said >= _SAY:
            said = now
            given.out.note(f"{len(told)} of {bulk.total} done …")
        await asyncio.sleep(0.1 if pause is None else min(pause, 0.1))


def tell_item(given: Globals, row: Any) -> None:
    """Print one outcome."""
    given.out.item(
        item=row["n"], about=row["subject"], outcome=row["outcome"], code=row["code"], text=row["text"]
    )
    given.out.say(f"{row['subject']} {row['outcome']} {row['text'] or ''}".rstrip())


def summary(bulk: Bulk) -> str:
    """Count a bulk's items in words: "37 accepted, 1 refused"."""
    words = {"WAITING": "not begun", "ASKED": "not carried out yet", "HELD": "waiting for a second person"}
    parts = [
        f"{n} {words.get(word, word.lower().replace('_', ' '))}" for word, n in sorted(bulk.counts.items())
    ]
    return ", ".join(parts)


# --- milepost bulk ---------------------------------------------------------------------------------------


def read_id(text: str) -> UUID:
    """Read a bulk's id.

    Raises:
        UsageError: MP601 when it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(
            "MP601", f"{text!r} is no bulk's id. `milepost bulk list --all` shows them."
        ) from None


async def list_bulks(given: Globals, *, all_of_them: bool, limit: int) -> None:
    """Print acts on many, the youngest first."""
    async with reading(given.database_url()) as store:
        found = await bulks(store.connection, scope_of(given.actor()), only_open=not all_of_them, limit=limit)
    for one in found:
        given.out.item(**asdict(one))
    if not found:
        given.out.say("no act on many is under way" if not all_of_them else "there was no act on many yet")
        return
    heads = [column(name) for name in ("id", "by", "act", "state", "items", "outcomes")]
    given.out.listing(heads, [_line(one) for one in found])


def _line(one: Bulk) -> Entry:
    cells = [
        Text(str(one.id)),
        Text(clean(one.by)),
        Text(one.act.replace("_", "-")),
        state_text(one.state),
        Text(str(one.total)),
        Text(summary(one)),
    ]
    chosen = ", ".join(f"{name} {value}" for name, value in one.chosen.items())
    return Entry(cells, clean(first_line(f"{chosen}: {one.reason}")))


async def show_bulk(given: Globals, which: str, *, outcome: str | None, limit: int) -> None:
    """Print an act on many with its items.

    Raises:
        StateError: MP672 when there is none.
    """
    id = read_id(which)
    async with reading(given.database_url()) as store:
        found = await bulks(store.connection, scope_of(given.actor()), id=id)
        if not found:
            raise no_bulk(id)
        rows = await items_of(store.connection, id, outcome=outcome and outcome.strip().upper(), limit=limit)
    (one,) = found
    given.out.item(**asdict(one))
    given.out.say(f"bulk {one.id} {one.state}: {one.act.replace('_', '-')} by {one.by} at {rfc3339(one.at)}")
    given.out.say(f"{summary(one)}; {one.reason}")
    for row in rows:
        given.out.item(
            item=row["n"],
            about=row["subject"],
            outcome=row["outcome"] or row["state"],
            code=row["code"],
            text=row["text"],
            request=row["request"],
        )
        given.out.say(
            f"{row['n']} {row['subject']} {row['outcome'] or row['state']} {row['text'] or ''}".rstrip()
        )
    if len(rows) == limit:
        given.out.note(f"the first {limit}; --limit shows more")


async def change_bulk(given: Globals, which: str, what: str, *, reason: str) -> None:
    """Pause, resume, stop or confirm an act on many.

    Raises:
        StateError: MP660, MP661, MP672, MP673 as `control`.
    """
    require_reason(reason)
    async with changing(given.database_url()) as connection:
        found = await control(connection, given.actor(), read_id(which), what, reason=reason)
    given.out.item(bulk=found.id, state=found.state, counts=dict(found.counts))
    given.out.say(f"bulk {found.id} {found.state}: {summary(found)}")
