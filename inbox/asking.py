"""What a person does with a consumer's dead letter: ask for it to be handled once more, or leave it as it is.

Both need only the database. The consumer's own process carries a redrive out, because it has the handler.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg

from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..schemas.states import LetterStatus
from ..streams.queries import Queries

#: Codes of letters that no process can handle as they are, with why and what to do instead.
_NEVER = {
    "TOO_OLD": (
        "it is older than the inbox's memory, so it may have been applied long ago, and this could be the second time. "
        "See whether its effect is there; if not, publish it anew under a new id, then ignore this letter."
    ),
    "EVENT_ID_REUSED": (
        "an earlier event has the same id, and that one counts. If this one is meant to happen too, publish it anew "
        "under an id of its own, then ignore this letter."
    ),
}
_UNDECODABLE = (
    "its bytes are no event for this consumer and will not become one. Have the sender publish it anew, then ignore "
    "this letter."
)


class Sql(Queries, file="asking.sql"):
    """Queries of this module, and of the carrying out."""

    place: str
    lock_hold: str
    letter: str
    ask: str
    ignore: str
    wake_followers: str
    release_hold: str
    audit: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        outcome: ASKED: a consumer's process carries it out. IGNORED: done. NOOP: there was nothing to do.
        text: Why there was nothing to do, '' otherwise.
    """

    outcome: Literal["ASKED", "IGNORED", "NOOP"]
    text: str = ""


async def redrive(
    connection: asyncpg.Connection[Any], n: int, *, by: str, reason: str, ids: Ids, kind: str = "PERSON"
) -> Answer:
    """Ask for a letter to be handled once more, in a transaction of its own.

    Args:
        n: The letter's number.
        by: Who asks.
        reason: Why; both are kept in the audit.
        kind: What it is that acts: PERSON, SYSTEM or AGENT.

    Raises:
        StateError: MP440 there is no such letter, MP441 no process can handle it as it is, MP442 an earlier letter of
            its key comes first.
    """
    async with connection.transaction(isolation="read_committed"):
        letter = await _letter(connection, n)
        if letter["status"] != LetterStatus.OPEN:
            return Answer("NOOP", _already(letter))
        if not letter["recoverable"]:
            why = _NEVER.get(letter["code"], _UNDECODABLE)
            raise StateError("MP441", f"letter {n} ({letter['code']}) cannot be redriven: {why}")
        if letter["behind"] is not None:
            raise StateError(
                "MP442",
                f"letter {n} waits behind letter {letter['behind']} of its key. Redrive or ignore that one first; "
                "those that only waited go on by themselves.",
            )
        await connection.execute(Sql.ask, letter["id"], by)
        after = {"status": LetterStatus.RETRY_PENDING}
        await audit(
            connection, ids, letter, by=by, kind=kind, act="letter.redrive", reason=reason, after=after
        )
    return Answer("ASKED")


async def ignore(
    connection: asyncpg.Connection[Any], n: int, *, by: str, reason: str, ids: Ids, kind: str = "PERSON"
) -> Answer:
    """Leave a letter's event unapplied for good, in a transaction of its own; its key goes on.

    Args:
        n: The letter's number.
        by: Who decides it.
        reason: Why; both are kept in the audit.
        kind: What it is that acts: PERSON, SYSTEM or AGENT.

    Raises:
        StateError: MP440 there is no such letter.
    """
    async with connection.transaction(isolation="read_committed"):
        place = await connection.fetchrow(Sql.place, n)
        if place is not None and place["held_key"] is not None:
            await connection.execute(Sql.lock_hold, place["scope"], place["topic"], place["held_key"])
        letter = await _letter(connection, n)
        if not await connection.fetchval(Sql.ignore, letter["id"], by):
            return Answer("NOOP", _already(letter))
        if place is not None:
            await go_on(connection, place["scope"], place["topic"], place["held_key"], by)
        after = {"status": LetterStatus.IGNORED}
        await audit(
            connection, ids, letter, by=by, kind=kind, act="letter.ignore", reason=reason, after=after
        )
    return Answer("IGNORED")


async def go_on(
    connection: asyncpg.Connection[Any], scope: str, topic: str, held_key: bytes | None, by: str
) -> None:
    """Let the key of a letter that is done go on: wake those that waited, and release it with the last one.

    The caller's transaction has locked the hold.
    """
    if held_key is None:
        return
    await connection.execute(Sql.wake_followers, scope, topic, held_key, by)
    await connection.execute(Sql.release_hold, scope, topic, held_key)


async def audit(
    connection: asyncpg.Connection[Any],
    ids: Ids,
    letter: Mapping[str, Any],
    *,
    by: str,
    kind: str = "PERSON",
    act: str,
    reason: str,
    after: Mapping[str, Any],
) -> None:
    """Write who changed a letter, from what to what, and why."""
    evidence = {
        "letter": letter["n"],
        "scope": letter["scope"],
        "topic": letter["topic"],
        "code": letter["code"],
    }
    before = {"status": letter["status"]}
    written = (json.dumps(part) for part in (before, after, evidence))
    await connection.execute(Sql.audit, ids.new(), letter["tenant"], by, kind, act, reason, *written)


async def _letter(connection: asyncpg.Connection[Any], n: int) -> dict[str, Any]:
    letter = await connection.fetchrow(Sql.letter, n)
    if letter is None:
        raise StateError(
            "MP440", f"letter {n}: there is no such letter. `milepost dead list` shows those there are."
        )
    return dict(letter)


def _already(letter: Mapping[str, Any]) -> str:
    if letter["resolved_at"] is not None:
        return f"already {letter['status']} by {letter['resolved_by']} at {letter['resolved_at']:%Y-%m-%d %H:%MZ}"
    return f"already {letter['status']}, asked for by {letter['asked_by']}"
