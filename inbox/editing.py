"""A person edits a dead letter: the letter stays as it is and is closed, and a new one, linked to it, takes its place.

It needs only the database. The new letter has an event id of its own, stands where the old one stood among those of its
key, and is redriven like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from ..schemas.envelope import Record
from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..schemas.packing import pack_headers, unpack_headers
from ..schemas.states import LetterStatus
from ..streams.queries import Queries
from . import asking
from .edit_model import Edit, Edited, edited
from .letter import for_people, hold_name
from .model import BEHIND

#: Code of an edited letter, until a redrive of it fails.
EDITED = "EDITED"


class _Sql(Queries, file="editing.sql"):
    letter: str
    replace: str
    insert: str
    park: str
    is_held: str
    hold: str
    before: str


@dataclass(frozen=True, slots=True)
class NewLetter:
    """What an edit made.

    Attributes:
        n: The new letter's number.
        status: RETRY_PENDING when it was asked to be redriven, OPEN otherwise.
        behind: The letter of its key that comes first; it then goes on by itself.
        changes: What differs; names and paths, not what the value holds.
    """

    n: int
    event_id: str
    status: LetterStatus
    behind: int | None
    changes: Mapping[str, Any]


async def edit(
    connection: asyncpg.Connection[Any],
    n: int,
    change: Edit,
    *,
    by: str,
    reason: str,
    ids: Ids,
    max_bytes: int,
    redrive: bool = False,
    kind: str = "PERSON",
) -> NewLetter:
    """Make a new letter of an open one, in a transaction of its own.

    The old letter keeps its bytes and becomes IGNORED. The new one takes its turn among the letters of its key; with
    another key it goes behind those of that key, and the old key goes on.

    Args:
        n: The old letter's number.
        change: What is to be different.
        by: Who edits.
        reason: Why; both are kept in the audit.
        max_bytes: Largest value and headers together.
        redrive: Have it handled at once, or as soon as those before it are done.
        kind: What it is that acts: PERSON, SYSTEM or AGENT.

    Raises:
        StateError: MP440 there is no such letter, MP773 it is coded, MP774 it is closed, MP775 it is the relay's.
        UsageError: MP770, MP771, MP772, as `edit_model.edited`.
    """
    async with connection.transaction(isolation="read_committed"):
        await _lock_holds(connection, n, change.key)
        letter = await _open(connection, n)
        new = edited(
            _record(letter),
            change,
            n=n,
            code=letter["code"],
            event_id=ids.new(),
            original=letter["event_id"],
            max_bytes=max_bytes,
        )
        return await _replace(
            connection, letter, new, by=by, kind=kind, reason=reason, ids=ids, redrive=redrive
        )


async def _lock_holds(connection: asyncpg.Connection[Any], n: int, key: bytes | None) -> None:
    """Lock the holds of a letter's key and of the key it gets, in one order for everybody."""
    place = await connection.fetchrow(asking.Sql.place, n)
    if place is None:
        return
    names = {place["held_key"], None if key is None else hold_name(key)} - {None}
    for name in sorted(names):
        await connection.execute(asking.Sql.lock_hold, place["scope"], place["topic"], name)


async def _open(connection: asyncpg.Connection[Any], n: int) -> asyncpg.Record:
    letter: asyncpg.Record | None = await connection.fetchrow(_Sql.letter, n)
    if letter is None:
        raise StateError(
            "MP440", f"letter {n}: there is no such letter. `milepost dead list` shows those there are."
        )
    if letter["stage"] == "RELAY":
        raise StateError(
            "MP775",
            f"letter {n} is an event that was never sent, and the relay sends it as it was published or not at all. "
            "Publish the right event, then ignore this letter.",
        )
    if letter["status"] not in {LetterStatus.OPEN, LetterStatus.RETRY_PENDING}:
        edited_as = f" It was edited as letter {letter['next_n']}." if letter["next_n"] is not None else ""
        raise StateError(
            "MP774", f"letter {n} is {letter['status']} already, by {letter['resolved_by']}.{edited_as}"
        )
    return letter


async def _replace(
    connection: asyncpg.Connection[Any],
    letter: asyncpg.Record,
    new: Edited,
    *,
    by: str,
    kind: str,
    reason: str,
    ids: Ids,
    redrive: bool,
) -> NewLetter:
    scope, topic = letter["scope"], letter["topic"]
    consumer = scope.partition(":")[2]
    held_key, turn = await _place(connection, letter, new.record.key, f"{EDITED}: letter {letter['n']}")
    behind = None
    if held_key is not None:
        behind = await connection.fetchval(_Sql.before, scope, topic, held_key, turn, letter["id"])
    status = LetterStatus.RETRY_PENDING if redrive and behind is None else LetterStatus.OPEN
    # One that has to wait and is to be handled goes on by itself, as those do that only wait.
    code = BEHIND.code if redrive and behind is not None else EDITED
    message = for_people(f"letter {letter['n']} ({letter['code']}) was edited by {by}: {reason}")
    asked = by if status is LetterStatus.RETRY_PENDING else None
    envelope = new.envelope
    id = ids.new()
    await connection.execute(_Sql.replace, letter["id"], by, id)
    number = await connection.fetchval(
        _Sql.insert,
        *(id, letter["id"], envelope.tenant, envelope.id, new.record.key, new.record.value),
        *(pack_headers(new.record.headers), code, message, status, held_key, turn, asked),
    )
    await connection.execute(_Sql.park, consumer, envelope.id, envelope.tenant, new.fingerprint, letter["id"])
    if letter["held_key"] != held_key:
        await asking.go_on(connection, scope, topic, letter["held_key"], by)
    after = {
        "status": LetterStatus.IGNORED,
        "edited_as": number,
        "edited_status": status,
        "event": str(envelope.id),
    }
    await _audit(connection, ids, letter, new, by=by, kind=kind, reason=reason, after=after)
    return NewLetter(number, str(envelope.id), status, behind, new.changes)


async def _place(
    connection: asyncpg.Connection[Any], letter: asyncpg.Record, key: bytes | None, why: str
) -> tuple[bytes | None, int | None]:
    """Return the key that the new letter holds, and its turn: the old one's, or the last where the key is another."""
    scope, topic, held = letter["scope"], letter["topic"], letter["held_key"]
    name = None if key is None else hold_name(key)
    if name == held:
        return held, None if held is None else letter["place"]
    if name is None or (held is None and not await connection.fetchval(_Sql.is_held, scope, topic, name)):
        return None, None
    await connection.execute(_Sql.hold, scope, topic, name, why)
    return name, None


def _record(letter: asyncpg.Record) -> Record:
    sent = letter["sent_at"]
    return Record(
        letter["topic"],
        letter["partition"],
        letter["offset"],
        letter["key"],
        letter["value"],
        unpack_headers(letter["headers"]),
        -1 if sent is None else int(sent.timestamp() * 1000),
    )


async def _audit(
    connection: asyncpg.Connection[Any],
    ids: Ids,
    letter: asyncpg.Record,
    new: Edited,
    *,
    by: str,
    kind: str,
    reason: str,
    after: Mapping[str, Any],
) -> None:
    evidence = {
        "letter": letter["n"],
        "scope": letter["scope"],
        "topic": letter["topic"],
        "code": letter["code"],
        "changes": new.changes,
    }
    before = {"status": letter["status"], "event": str(letter["event_id"])}
    written = (json.dumps(part) for part in (before, after, evidence))
    await connection.execute(
        asking.Sql.audit, ids.new(), letter["tenant"], by, kind, "letter.edit", reason, *written
    )
