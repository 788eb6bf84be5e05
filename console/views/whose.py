"""Whose something is, to decide about it before it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ...streams.queries import Queries

Thing = Literal["run", "letter", "signal", "request", "proposal"]


class _Sql(Queries, file="whose.sql"):
    run: str
    letter: str
    signal: str
    request: str
    proposal: str


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose something is.

    Attributes:
        tenant: '' for none.
        saga: Of its run; None for what belongs to none.
        run: Its run, if any.
    """

    tenant: str
    saga: str | None
    run: UUID | None


async def whose(connection: asyncpg.Connection[Any], thing: Thing, name: UUID | int) -> Whose | None:
    """Return whose it is; None where there is no such thing."""
    row = await connection.fetchrow(getattr(_Sql, thing), name)
    return None if row is None else Whose(row["tenant"], row["saga"], row["run_id"])
