"""`milepost dead redrive` and `milepost dead ignore`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import typer

from ..recovery.bulk import FASTEST, items_of
from ..recovery.bulk_beginning import begin
from ..recovery.bulk_carrying import carry, due_in, settle
from ..recovery.bulk_choosing import Item, Preview
from ..recovery.letters import LetterAct, act_on
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import SystemIds
from .dead_store import Filter, Row, Sql, no_letter, short
from .findings import counted
from .options import Globals
from .problems import FINDINGS
from .store import changing
from .unpark import require_reason

#: How often to look what became of redriven letters, in seconds.
_LOOK = 0.2
#: Seconds between two words about the progress.
_SAY = 5.0


_PREVIEW = 5
_IDS = SystemIds()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one letter.

    Attributes:
        word: RESOLVED, FAILED_AGAIN, IGNORED, NOOP, REFUSED, BEHIND (waits for an earlier one of its key), WAITING
            (nobody has carried it out yet) or ASKED.
    """

    n: int
    word: str
    text: str = ""
    code: str | None = None


async def change(
    given: Globals, act: LetterAct, ids: Sequence[int], wanted: Filter, *, reason: str, wait: float
) -> None:
    """Redrive or ignore letters, and print one outcome for each.

    Args:
        ids: Numbers of letters; without any, those that `wanted` chooses.
        wait: Longest wait for outcomes of redrives, in seconds; 0 for not waiting.

    Raises:
        UsageError: MP601 when letters are neither named nor chosen, or both; MP426 when nobody can be asked.
        StateError: MP440 to MP442, MP420 to MP422 when the only letter that was named is refused.
        typer.Exit: 1 when some failed again, were refused or wait.
    """
    if bool(ids) != wanted.empty:
        raise UsageError(
            "MP601",
            "name letters by their ids, or choose them by --topic, --code, --key, --consumer, --status, --since or "
            "--cause.",
        )
    require_reason(reason)
    async with changing(given.database_url()) as connection:
        if ids:
            rows = await _named(connection, ids)
            outcomes = [await _ask(given, connection, act, row, reason, alone=len(ids) == 1) for row in rows]
        else:
            rows = await _chosen(given, connection, act, wanted)
            outcomes = (
                await _ask_all(given, connection, act, rows, reason, chosen=wanted.as_json()) if rows else []
            )
        asked = [outcome.n for outcome in outcomes if outcome.word == "ASKED"]
        for outcome in outcomes:
            if outcome.word != "ASKED" or not wait:
                _tell(given, outcome)
        found = await follow(given, connection, asked, wait) if asked and wait else []
    words = [
        outcome.word for outcome in (*(o for o in outcomes if o.n not in set(asked) or not wait), *found)
    ]
    given.out.say(summary(words))
    if {"FAILED_AGAIN", "REFUSED", "BEHIND", "WAITING"} & set(words):
        raise typer.Exit(FINDINGS)


def summary(words: Sequence[str]) -> str:
    """Count outcomes in words: "2 redriven, 1 failed again"."""
    said = {
        "RESOLVED": "redriven",
        "ASKED": "asked for",
        "IGNORED": "ignored",
        "FAILED_AGAIN": "failed again",
        "BEHIND": "behind an earlier letter",
        "WAITING": "not carried out yet",
        "REFUSED": "refused",
        "NOOP": "with nothing to do",
    }
    parts = [f"{words.count(word)} {text}" for word, text in said.items() if word in words]
    return ", ".join(parts) or "no letter that waits fits; `milepost dead list` shows those there are"


async def _named(connection: asyncpg.Connection[Any], ids: Sequence[int]) -> list[Row]:
    rows = []
    for n in dict.fromkeys(ids):
        row = await connection.fetchrow(Sql.letter, n)
        if row is None:
            raise no_letter(n)
        rows.append(row)
    return sorted(rows, key=lambda row: row["n"])


async def _chosen(
    given: Globals, connection: asyncpg.Connection[Any], act: LetterAct, wanted: Filter
) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await connection.fetch(Sql.letters, *wanted.arguments())
    if not rows:
        return []
    amount = counted(len(rows), "letter")
    given.out.note(f"{amount}{', as many as --limit says' if len(rows) == wanted.limit else ''}:")
    for row in rows[:_PREVIEW]:
        given.out.note(f"  {short(row)}")
    if len(rows) > _PREVIEW:
        given.out.note(f"  … and {len(rows) - _PREVIEW} more")
    given.confirm(f"{amount} would be {'redriven' if act == 'redrive' else 'ignored for good'}. Go on?")
    return rows


async def _ask(
    given: Globals, connection: asyncpg.Connection[Any], act: LetterAct, row: Row, reason: str, *, alone: bool
) -> Outcome:
    found = await act_on(connection, given.actor(), act, row["n"], reason=reason, ids=_IDS)
    if alone and found.code is not None:
        raise StateError(found.code, found.text)
    return Outcome(found.n, found.word, found.text, found.code)


async def _ask_all(
    given: Globals,
    connection: asyncpg.Connection[Any],
    act: LetterAct,
    rows: Sequence[Row],
    reason: str,
    *,
    chosen: Mapping[str, Any],
) -> list[Outcome]:
    """Begin an act on many, and carry it out as far as asking goes; should this be killed, `milepost serve` goes on."""
    items = [
        Item(subject=f"letter {row['n']}", tenant=row["tenant"], letter=row["n"], code=row["code"])
        for row in rows
    ]
    preview = Preview(act, chosen, items, 0, False)
    bulk = await begin(connection, given.actor(), preview, reason=reason, rate=FASTEST)
    given.out.note(f"bulk {bulk}")
    while (pause := await due_in(connection, bulk)) is not None:
        if not await carry(connection, bulk):
            await asyncio.sleep(min(pause, _LOOK))
    await settle(connection, bulk)
    found = await items_of(connection, bulk, limit=len(rows))
    return [
        Outcome(row["letter"], row["outcome"] or "ASKED", row["text"] or "", row["code"]) for row in found
    ]


async def follow(
    given: Globals, connection: asyncpg.Connection[Any], asked: Sequence[int], wait: float
) -> list[Outcome]:
    """Tell what becomes of redriven letters as it becomes known, and of the others when the time is over."""
    began = said = time.monotonic()
    open_ones, found = set(asked), list[Outcome]()
    while True:
        for row in await connection.fetch(Sql.states, sorted(open_ones)):
            outcome = judge(row)
            if outcome is not None:
                open_ones.discard(row["n"])
                found.append(outcome)
                _tell(given, outcome)
        now = time.monotonic()
        if not open_ones or now - began >= wait:
            break
        if now - said >= _SAY:
            said = now
            given.out.note(f"{len(found)} of {len(asked)} done, {now - began:.0f} s …")
        await asyncio.sleep(_LOOK)
    for n in sorted(open_ones):
        text = "nobody has carried it out yet; `milepost serve` of its service does, with the role consumers or relay"
        found.append(Outcome(n, "WAITING", text))
        _tell(given, found[-1])
    return found


def judge(row: Row) -> Outcome | None:
    """Return what became of a redriven letter; None while it is being carried out."""
    match row["status"]:
        case "RESOLVED":
            return Outcome(row["n"], "RESOLVED")
        case "IGNORED":
            return Outcome(row["n"], "IGNORED", f"meanwhile by {row['resolved_by']}")
        case "OPEN" if row["code"] == "KEY_HELD":
            return Outcome(
                row["n"], "BEHIND", "an earlier letter of its key failed again, and it waits on", row["code"]
            )
        case "OPEN":
            return Outcome(row["n"], "FAILED_AGAIN", row["message"], row["code"])
    return None


def _tell(given: Globals, outcome: Outcome) -> None:
    given.out.item(id=outcome.n, outcome=outcome.word, code=outcome.code, text=outcome.text)
    code = f"{outcome.code} " if outcome.code else ""
    given.out.say(f"{outcome.n} {outcome.word} {code}{outcome.text}".rstrip())
