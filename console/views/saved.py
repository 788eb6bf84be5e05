"""Filters that people have saved for a list, each for himself."""

from __future__ import annotations

from typing import Any

import asyncpg
from pydantic import BaseModel

from ...schemas.errors import UsageError
from ...streams.queries import Queries

LONGEST_NAME, LONGEST_QUERY = 60, 2000


class Sql(Queries, file="saved.sql"):
    """Queries of this module."""

    of_owner: str
    save: str
    forget: str


class Saved(BaseModel):
    """A filter under a name; `query` is what stands behind the question mark of the list's address."""

    name: str
    query: str


async def saved(connection: asyncpg.Connection[Any], owner: str, page: str) -> list[Saved]:
    """Return somebody's filters for a page, by name."""
    return [Saved(**row) for row in await connection.fetch(Sql.of_owner, owner, page)]


async def save(connection: asyncpg.Connection[Any], owner: str, page: str, one: Saved) -> None:
    """Keep a filter, in place of one of that name.

    Raises:
        UsageError: MP730 for a name that is empty or too long, or where fifty are kept already.
    """
    name = one.name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or len(one.query) > LONGEST_QUERY:
        raise UsageError("MP730", f"A filter has a name of 1 to {LONGEST_NAME} characters that can be seen.")
    if await connection.execute(Sql.save, owner, page, name, one.query) == "INSERT 0 0":
        raise UsageError("MP730", "You keep fifty filters for this list already. Forget one first.")


async def forget(connection: asyncpg.Connection[Any], owner: str, page: str, name: str) -> None:
    """Forget a filter; one that is not there is no error."""
    await connection.execute(Sql.forget, owner, page, name)
