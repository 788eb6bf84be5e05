"""Dead letters: groups of one cause, lists, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from ...recovery.letters import LetterFilter
from ...recovery.permissions import NOTHING, Scope
from ...schemas.errors import StateError
from ...schemas.packing import unpack_headers
from ...streams.queries import Queries
from .letter_rows import (
    Failure,
    InLine,
    LetterAudit,
    LetterDetail,
    LetterGroup,
    LetterGroups,
    LetterRows,
    letter_row,
    owner,
    spoken,
)
from .model import tenants_of
from .payload import headers, shown

#: Most letters that groups are made of, and most groups.
LOOKED_AT, GROUPS = 50_000, 200
#: Letters of one key that are shown.
_KEY = 50


class _Sql(Queries, file="letters.sql"):
    groups: str
    letters: str
    letter: str
    key_order: str
    key_order_of_relay: str
    failures: str
    audits: str


async def letter_groups(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    wanted: LetterFilter | None = None,
    *,
    payloads: Scope = NOTHING,
) -> LetterGroups:
    """Return letters by cause, the largest group first.

    Args:
        payloads: Of what the reader may see what events say; a failure's words may quote them.
    """
    wanted = wanted or LetterFilter()
    rows = await connection.fetch(_Sql.groups, *wanted.parameters(scope), LOOKED_AT, GROUPS)
    readable = payloads == scope
    found = [
        LetterGroup(
            **{
                **row,
                "consumer": owner(row["scope"]),
                "cause": spoken(row["cause"], row["code"], row["stage"], readable=readable),
                "message": spoken(row["message"], row["code"], row["stage"], readable=readable),
            }
        )
        for row in rows
    ]
    looked_at = rows[0]["looked_at"] if rows else 0
    return LetterGroups(
        groups=found,
        letters=looked_at,
        cut=looked_at == LOOKED_AT or len(rows) == GROUPS,
        now=rows[0]["now"] if rows else None,
    )


async def letters(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    wanted: LetterFilter,
    *,
    after: int = 0,
    limit: int = 50,
    payloads: Scope = NOTHING,
) -> LetterRows:
    """Return a page of letters, the oldest first.

    Args:
        after: The number that the page before ended with.
        payloads: Of what the reader may see what events say; a failure's words may quote them.
    """
    rows = await connection.fetch(_Sql.letters, *wanted.parameters(scope), after, limit + 1)
    found = [letter_row(row, readable=payloads.allows(row["tenant"], None)) for row in rows[:limit]]
    following = found[-1].n if len(rows) > limit else None
    return LetterRows(letters=found, next=following, now=rows[0]["now"] if rows else None)


async def letter(
    connection: asyncpg.Connection[Any], scope: Scope, n: int, *, readable: bool
) -> LetterDetail:
    """Return one letter.

    Args:
        readable: Whether the reader may see what events say.

    Raises:
        StateError: MP440 when there is none that the reader may see.
    """
    row = await _row(connection, scope, n)
    line = await _line(connection, scope, row)
    failures = await connection.fetch(_Sql.failures, row["id"])
    # The relay's acts name a letter by its id, those of consumers by its number.
    audits = await connection.fetch(_Sql.audits, [str(n), str(row["id"])], row["first_failed_at"])
    found = _unpacked(row["headers"])
    return LetterDetail(
        letter=letter_row(row, readable=readable),
        sent_at=row["sent_at"],
        value=shown(row["value"], readable=readable),
        headers=headers(found, readable=readable),
        failures=[
            Failure(
                **{**one, "message": spoken(one["message"], one["code"], row["stage"], readable=readable)}
            )
            for one in failures
        ],
        edit_of=_link(row, "edit_of"),
        edited_as=_link(row, "edited_as"),
        line=line,
        inbox=row["inbox"],
        coded=any(name.lower() == "milepost-codec" for name, _ in found),
        audits=[LetterAudit(**audit) for audit in audits],
        now=row["now"],
    )


@dataclass(frozen=True, slots=True)
class LetterRecord:
    """A letter's bytes, for who may see what events say."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


async def letter_record(connection: asyncpg.Connection[Any], scope: Scope, n: int) -> LetterRecord:
    """Return the bytes of a letter.

    Raises:
        StateError: MP440 when there is none that the reader may see.
    """
    row = await _row(connection, scope, n)
    return LetterRecord(row["key"], row["value"], _unpacked(row["headers"]))


async def may_see(connection: asyncpg.Connection[Any], scope: Scope, n: int) -> bool:
    """Say whether there is a letter of that number that the reader may see."""
    return await connection.fetchrow(_Sql.letter, n, tenants_of(scope)) is not None


async def _row(connection: asyncpg.Connection[Any], scope: Scope, n: int) -> asyncpg.Record:
    row: asyncpg.Record | None = await connection.fetchrow(_Sql.letter, n, tenants_of(scope))
    if row is None:
        raise StateError("MP440", f"letter {n}: there is no such letter.")
    return row


async def _line(connection: asyncpg.Connection[Any], scope: Scope, row: asyncpg.Record) -> list[InLine]:
    if row["scope"] == "relay:key":
        key, query = row["key"], _Sql.key_order_of_relay
    else:
        key, query = row["held_key"], _Sql.key_order
    return [] if key is None else await in_line(connection, scope, row["scope"], row["topic"], key, query)


async def in_line(  # noqa: PLR0917 - a key's place
    connection: asyncpg.Connection[Any],
    seen: Scope,
    scope: str,
    topic: str,
    key: bytes,
    query: str | None = None,
) -> list[InLine]:
    """Return the letters of a held key that are not done and may be seen, in the order in which they are worked off."""
    if query is None:
        query = _Sql.key_order_of_relay if scope.startswith("relay:") else _Sql.key_order
    rows: Sequence[Any] = await connection.fetch(query, scope, topic, key, _KEY, tenants_of(seen))
    return [InLine(**row) for row in rows]


def _unpacked(packed: bytes) -> list[tuple[str, bytes | None]]:
    try:
        return unpack_headers(packed)
    except ValueError:
        return []  # a tool of somebody else may have written the row


def _link(row: asyncpg.Record, name: str) -> int | None:
    return None if row[name] is None else row[f"{name}_n"] or 0
