"""What a person asks about letters of the relay: to send one again, or to give it up.

The person's tool needs only the database. The wish is written into the letter's row; the relay that leads carries it
out under its lease, so that a key's order is kept whoever asks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..streams.queries import Queries

_DONE = {
    "RETRY_PENDING": "was asked for before; the relay sends it when it next looks",
    "RESOLVED": "has been sent",
    "IGNORED": "was ignored",
}


class Sql(Queries, file="unpark.sql"):
    """Queries of this module."""

    lock_letter: str
    letter_before: str
    ask: str
    ignore: str
    go_on: str
    write_audit: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of a wish.

    Attributes:
        letter: The letter's id.
        outcome: ASKED when the relay will send it, IGNORED when it is given up, NOOP when there was nothing to do.
        text: The same for people.
    """

    letter: UUID
    outcome: Literal["ASKED", "IGNORED", "NOOP"]
    text: str


async def ask_relay(
    connection: asyncpg.Connection[Any], letter: UUID, *, by: str, reason: str, ids: Ids, kind: str = "PERSON"
) -> Asked:
    """Ask the relay to send a row that it has put aside; later rows of its key follow in their order.

    Args:
        connection: Driver connection; the wish is a transaction of its own, or a savepoint of the open one.
        letter: Id of the dead letter, which is the event's.
        by: Who asks.
        reason: Why, for the audit.
        ids: Makes the audit entry's id.
        kind: What it is that acts: PERSON, SYSTEM or AGENT.

    Raises:
        StateError: MP420 there is no such letter of the relay, MP421 it waits behind an earlier letter of its key,
            MP422 it cannot be sent as it is.
    """
    async with connection.transaction():
        found = await _lock(connection, letter)
        if found["status"] != "OPEN":
            return Asked(letter, "NOOP", f"{_DONE[found['status']]}.")
        if not found["recoverable"]:
            raise StateError(
                "MP422",
                f"letter {found['n']}: {found['message']}, so it cannot be sent as it is. Publish the event anew, and "
                "ignore this one, so that later events of its key go on.",
            )
        if found["code"] == "KEY_HELD":
            await _refuse_behind(connection, letter, found)
        await connection.execute(Sql.ask, letter, by)
        await _audit(
            connection, found, "outbox.unpark", "RETRY_PENDING", by=by, kind=kind, reason=reason, ids=ids
        )
    return Asked(letter, "ASKED", "the relay sends it when it next looks.")


async def ignore_parked(
    connection: asyncpg.Connection[Any], letter: UUID, *, by: str, reason: str, ids: Ids, kind: str = "PERSON"
) -> Asked:
    """Give a row up that the relay has put aside; later rows of its key go on without it.

    Args:
        connection: As for `ask_relay`.
        letter: Id of the dead letter.
        by: Who decides.
        reason: Why, for the audit.
        ids: Makes the audit entry's id.
        kind: What it is that acts: PERSON, SYSTEM or AGENT.

    Raises:
        StateError: MP420 there is no such letter of the relay.
    """
    async with connection.transaction():
        found = await _lock(connection, letter)
        if found["status"] not in {"OPEN", "RETRY_PENDING"}:
            return Asked(letter, "NOOP", f"{_DONE[found['status']]}.")
        await connection.execute(Sql.ignore, letter, by)
        await connection.execute(Sql.go_on, letter, by)
        await _audit(connection, found, "outbox.ignore", "IGNORED", by=by, kind=kind, reason=reason, ids=ids)
    return Asked(letter, "IGNORED", "it will not be sent; later events of its key go on.")


async def _lock(connection: asyncpg.Connection[Any], letter: UUID) -> asyncpg.Record:
    found: asyncpg.Record | None = await connection.fetchrow(Sql.lock_letter, letter)
    if found is None:
        raise StateError(
            "MP420",
            f"letter {letter}: the relay has put no such event aside. `milepost dead list` shows those there are.",
        )
    return found


async def _refuse_behind(connection: asyncpg.Connection[Any], letter: UUID, found: asyncpg.Record) -> None:
    before = await connection.fetchrow(Sql.letter_before, letter)
    if before is not None:
        raise StateError(
            "MP421",
            f"letter {found['n']} waits behind letter {before['n']} of its key ({before['code']}). Send or ignore that "
            "one, and this one follows by itself.",
        )


async def _audit(
    connection: asyncpg.Connection[Any],
    found: asyncpg.Record,
    act: str,
    after: str,
    *,
    by: str,
    kind: str,
    reason: str,
    ids: Ids,
) -> None:
    letter = {"letter": str(found["id"]), "topic": found["topic"], "code": found["code"]}
    await connection.execute(
        Sql.write_audit,
        ids.new(),
        found["tenant"],
        by,
        kind,
        act,
        reason,
        json.dumps({"status": found["status"]}),
        json.dumps({"status": after}),
        json.dumps(letter),
    )
