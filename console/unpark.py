"""`milepost outbox unpark` and `rebaseline`: what operators change about the relay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import typer

from ..outbox.rebaseline import rebaseline
from ..outbox.unpark import Asked, ask_relay
from ..recovery.acting import Attempt, attempting
from ..recovery.permissions import Act
from ..schemas.errors import MilepostError, StateError, UsageError
from ..schemas.ids import SystemIds
from .findings import counted
from .options import Globals
from .outbox import Sql
from .problems import FINDINGS
from .store import changing

#: How often to look whether the relay has carried it out, in seconds.
_LOOK = 0.25


@dataclass(frozen=True, slots=True)
class Choice:
    """Which parked events; what is None does not matter."""

    topic: str | None = None
    code: str | None = None
    key: str | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was chosen by."""
        return self.topic is None and self.code is None and self.key is None


async def unpark(given: Globals, names: Sequence[str], choice: Choice, *, reason: str, wait: float) -> None:
    """Ask the relay for parked events and tell what became of each.

    Raises:
        UsageError: MP601 when nothing is named or chosen, or both are, MP426 when nobody can be asked.
        StateError: MP420, MP421, MP422 when the only event that was named cannot be asked for.
        typer.Exit: 1 when some were refused.
    """
    if bool(names) != choice.empty:
        raise UsageError(
            "MP601", "name parked events by number or id, or choose them by --topic, --code or --key."
        )
    require_reason(reason)
    async with changing(given.database_url()) as connection:
        if names:
            found = [await _find(connection, name) for name in names]
        else:
            found = await _chosen(given, connection, choice)
        asked = [await _ask(given, connection, row, reason, alone=len(found) == 1) for row in found]
        sent, waiting, refused = await _outcomes(given, connection, found, asked, wait)
    given.out.item(event="done", unparked=sent, waiting=waiting, refused=refused)
    words = [f"{sent} unparked", f"{waiting} asked for, not sent yet" if waiting else ""]
    given.out.say("; ".join(filter(None, [*words, f"{refused} refused" if refused else ""])))
    if refused:
        raise typer.Exit(FINDINGS)


def require_reason(reason: str) -> None:
    """Refuse a change that nobody will understand later.

    Raises:
        UsageError: MP601 when the reason is empty.
    """
    if not reason.strip():
        raise UsageError("MP601", "--reason is empty. Say why; it is kept in the audit.")


async def _find(connection: asyncpg.Connection[Any], name: str) -> asyncpg.Record:
    number, letter = (int(name), None) if name.isdecimal() and len(name) < 19 else (None, _uuid(name))
    found: asyncpg.Record | None = await connection.fetchrow(Sql.find_letter, number, letter)
    if found is None:
        raise StateError(
            "MP420",
            f"letter {name}: the relay has put no such event aside. `milepost outbox` shows those there are.",
        )
    return found


def _uuid(name: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise UsageError("MP601", f"ID {name!r} is neither a letter's number nor an event's id.") from None


async def _chosen(
    given: Globals, connection: asyncpg.Connection[Any], choice: Choice
) -> list[asyncpg.Record]:
    key = None if choice.key is None else choice.key.encode()
    found: list[asyncpg.Record] = await connection.fetch(Sql.choose_letters, choice.topic, choice.code, key)
    if not found:
        return []
    first = found[0]
    given.out.note(
        f"{counted(len(found), 'parked event')}, the first: {first['n']} {first['topic']} {first['code']}"
    )
    given.confirm(f"{counted(len(found), 'parked event')} would be sent. Go on?")
    return found


async def _ask(
    given: Globals, connection: asyncpg.Connection[Any], row: asyncpg.Record, reason: str, *, alone: bool
) -> Asked | StateError:
    actor, evidence = given.actor(), {"letter": str(row["id"]), "topic": row["topic"], "code": row["code"]}
    attempt = Attempt(
        act=Act.UNPARK, name="outbox.unpark", reason=reason, tenant=row["tenant"], evidence=evidence
    )
    try:
        async with attempting(connection, actor, attempt):
            return await ask_relay(connection, row["id"], by=actor.name, reason=reason, ids=SystemIds())
    except StateError as error:
        if alone:
            raise
        return error


async def _outcomes(
    given: Globals,
    connection: asyncpg.Connection[Any],
    rows: Sequence[asyncpg.Record],
    asked: Sequence[Asked | StateError],
    wait: float,
) -> tuple[int, int, int]:
    """Tell each event's outcome; returns how many were sent, still wait, and were refused."""
    until = time.monotonic() + wait
    tally = {"sent": 0, "waiting": 0, "refused": 0, "noop": 0}
    for row, answer in zip(rows, asked, strict=True):
        outcome, text = await _outcome(connection, row["id"], answer, until)
        tally[outcome] += 1
        given.out.item(id=row["id"], n=row["n"], topic=row["topic"], outcome=outcome, text=text)
        given.out.say(f"{row['n']} {row['topic']}: {text}")
    return tally["sent"], tally["waiting"], tally["refused"]


async def _outcome(
    connection: asyncpg.Connection[Any], letter: UUID, answer: Asked | StateError, until: float
) -> tuple[str, str]:
    if isinstance(answer, MilepostError):
        return "refused", f"{answer.code} {answer.text}"
    if answer.outcome == "NOOP":
        return "noop", f"nothing to do: it {answer.text}"
    while True:
        state = await connection.fetchrow(Sql.letter_state, letter)
        assert state is not None, "letters in question are not deleted"
        if state["status"] == "RESOLVED":
            return "sent", "sent."
        if state["status"] == "OPEN":
            return "refused", f"parked again: {state['code']}: {state['message']}."
        if state["status"] == "IGNORED":
            return "noop", "ignored meanwhile."
        if time.monotonic() >= until:
            return "waiting", "asked for; a relay that leads will send it."
        await asyncio.sleep(_LOOK)


async def rebaseline_copy(given: Globals, *, reason: str, confirm: bool) -> None:
    """Let a restored copy relay on, or say what that would do.

    Raises:
        StateError: MP423 when there is nothing to mend, MP424 without the right to, MP660 when that is not permitted.
    """
    require_reason(reason)
    async with changing(given.database_url()) as connection:
        actor, ids = given.actor(), SystemIds()
        if confirm:
            attempt = Attempt(act=Act.REBASELINE, name="outbox.rebaseline", reason=reason)
            async with attempting(connection, actor, attempt):
                found = await rebaseline(connection, by=actor.name, reason=reason, ids=ids, preview=False)
        else:
            found = await rebaseline(connection, by=actor.name, reason=reason, ids=ids, preview=True)
    given.out.item(
        done=found.done,
        unsent=found.unsent,
        sent=found.sent,
        old_system=str(found.old_system),
        new_system=str(found.new_system),
    )
    will = "go" if found.done else "would go"
    given.out.say(
        f"last relayed by cluster {found.old_system}, this is {found.new_system}: "
        f"{counted(found.unsent, 'event')} {will} out next, {found.sent} were sent before and stay."
    )
    if not found.done:
        given.out.say("Nothing was changed. With --confirm it is done; see that the original relays no more.")
