"""Acts on many as they stand: rows that a process carries out one by one, with one outcome each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from ..streams.queries import Queries
from .permissions import Scope

#: Items begun in a second when nothing else is said, and at most.
RATE, FASTEST = 20.0, 200.0
#: Items of one bulk at most.
MOST = 100_000
OF_STEPS = frozenset({"retry", "skip", "mark_succeeded"})
OF_QUESTIONS = frozenset({"approve", "reject"})
OF_LETTERS = frozenset({"redrive", "ignore"})


class Sql(Queries, file="bulk.sql"):
    """Queries of acts on many."""

    choose: str
    letters: str
    begin: str
    add: str
    bulks: str
    items: str
    done_since: str
    take: str
    still: str
    fits: str
    due: str
    hardly_wait: str
    asked: str
    done: str
    next: str
    settle_requests: str
    settle_letters: str
    unsettled: str
    finish: str
    lock: str
    control: str
    give_up: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """An act on many as it stands.

    Attributes:
        chosen: What was chosen by.
        rate: Items begun in a second, at most.
        state: HELD (for a second person), RUNNING, PAUSED, STOPPED or DONE.
        counts: Items by outcome; WAITING and ASKED are those without one.
    """

    id: UUID
    act: str
    chosen: Mapping[str, Any]
    by: str
    kind: str
    reason: str
    total: int
    rate: float
    state: str
    at: datetime
    ended_at: datetime | None
    confirmed_by: str | None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many have no outcome yet."""
        return self.counts.get("WAITING", 0) + self.counts.get("ASKED", 0)


async def bulks(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    id: UUID | None = None,
    only_open: bool = False,
    limit: int = 50,
) -> list[Bulk]:
    """List acts on many, the youngest first; those that go beyond the scope are left out.

    Args:
        only_open: Only those that are HELD, RUNNING or PAUSED.
    """
    rows = await connection.fetch(Sql.bulks, id, only_open, *scope.parameters(), limit)
    names = ("id", "act", "by", "kind", "reason", "total", "rate", "state", "at", "ended_at", "confirmed_by")
    return [
        Bulk(
            chosen=json.loads(row["chosen"]),
            counts=json.loads(row["counts"] or "{}"),
            **{name: row[name] for name in names},
        )
        for row in rows
    ]


async def items_of(
    connection: asyncpg.Connection[Any],
    id: UUID,
    *,
    after: int = 0,
    outcome: str | None = None,
    limit: int = 1000,
) -> list[asyncpg.Record]:
    """Return a page of a bulk's items: n, subject, state, outcome, code, text, request.

    Args:
        after: Only those with a greater number.
        outcome: Only those with this outcome; WAITING and ASKED are those without one.
    """
    rows: list[asyncpg.Record] = await connection.fetch(Sql.items, id, after, outcome, limit)
    return rows


def no_bulk(id: UUID) -> StateError:
    """Make the error for an id that no bulk has."""
    return StateError("MP672", f"there is no bulk {id}. `milepost bulk list --all` shows those there are.")
