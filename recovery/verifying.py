"""Going along the whole chain of the audit, to find the first entry that is not as it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from ..schemas.errors import UsageError
from .chain import Broken, Link, Walk
from .sealing import Sql

#: Rows read from the server at once.
_PAGE = 2000


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found.

    Attributes:
        broken: The first entry that is not as it was; None when all are.
        entries: How many sealed entries are there and as they were, up to the first broken one.
        gone: How many went with months that were dropped by their age.
        unsealed: How many wait for their place.
        oldest: Age of the oldest of them; None when there is none.
        head: Place and hash of the last link, as `N:HASH`; None for an empty chain. Kept elsewhere, it shows later that
            the chain still goes through it.
    """

    broken: Broken | None
    entries: int
    gone: int
    unsealed: int
    oldest: timedelta | None
    head: str | None


def read_head(text: str) -> tuple[int, str]:
    """Read a head as `verify` writes it.

    Raises:
        UsageError: MP665 when it is none.
    """
    n, _, hash = text.strip().partition(":")
    if not n.isdecimal() or len(hash) != 64 or set(hash.lower()) - set("0123456789abcdef"):
        raise UsageError(
            "MP665", f"{text!r} is no head of the chain. Write it as `milepost audit verify` does: N:HASH."
        )
    return int(n), hash.lower()


async def verify(connection: asyncpg.Connection[Any], *, head: tuple[int, str] | None = None) -> Verified:
    """Verify the audit, from one snapshot.

    Args:
        connection: Without an open transaction.
        head: A link that the chain is to go through, from an earlier look.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        anchor = await connection.fetchrow(Sql.anchor)
        walk = Walk() if anchor is None else Walk(n=anchor["n"], last=anchor["hash"])
        broken = await _walk(connection, walk, head)
        if broken is None:
            broken = await _beside(connection)
        waiting = await connection.fetchrow(Sql.waiting)
    assert waiting is not None
    last = f"{walk.n}:{walk.last.hex()}" if walk.n else None
    return Verified(broken, walk.entries, walk.gone, waiting["amount"], waiting["oldest"], last)


async def _walk(
    connection: asyncpg.Connection[Any], walk: Walk, head: tuple[int, str] | None
) -> Broken | None:
    async for row in connection.cursor(Sql.walk, prefetch=_PAGE):
        one = Link(row["n"], row["id"], row["at"], row["digest"], row["hash"])
        broken = walk.step(one, row if row["there"] else None, retired=row["retired"])
        if broken is not None:
            return broken
        if head is not None and one.n == head[0] and one.hash.hex() != head[1]:
            return Broken(
                "chain", one.n, one.id, f"link {one.n} has another hash than the head that was kept"
            )
    if head is not None and head[0] > walk.n:
        return Broken(
            "chain", walk.n + 1, None, f"the chain ends at {walk.n}, and the head that was kept is {head[0]}"
        )
    return None


async def _beside(connection: asyncpg.Connection[Any]) -> Broken | None:
    """Look for entries that came or went without a place in the chain."""
    row = await connection.fetchrow(Sql.inserted)
    if row is not None:
        text = (
            f"entry {row['id']} of {row['at']:%Y-%m-%d %H:%MZ} has no place in the chain and waits for none"
        )
        return Broken("inserted", None, row["id"], text)
    row = await connection.fetchrow(Sql.lost)
    if row is not None:
        text = f"entry {row['id']} of {row['at']:%Y-%m-%d %H:%MZ} was removed before it was sealed"
        return Broken("removed", None, row["id"], text)
    return None
