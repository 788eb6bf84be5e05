"""Finding what may have drifted: one bounded query for each kind, which only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from ..sagas.model import Json
from ..streams.queries import Queries
from . import drifting
from .model import PATIENCE, Action, Drift, Observation


class Sql(Queries, file="observers.sql"):
    """Queries of this module."""

    by_index: str
    worker_lost: str
    not_told: str
    signal_present: str
    waits: str
    unknown: str
    undo_failed: str
    undo_stopped: str
    letters: str
    holds: str
    outbox: str
    lock_left: str
    decided: str
    now: str


#: Where a page begins; what a cursor is depends on the query.
Place: TypeAlias = tuple[Any, Any]
Read: TypeAlias = Callable[[Mapping[str, Any], datetime], Observation]

_FIRST: Place = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
#: A row of the outbox is counted up to so many.
MOST_UNSENT = 10_000
#: An outbox that is behind by more may not have sent what nobody was told of.
SLOW_OUTBOX = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Observer:
    """One query.

    Attributes:
        name: Of the query and of its place.
        sql: Takes service, run, age, place (two values) and page.
        age: How long something must have lasted: what mends itself does so before.
        read: Makes an observation of a row.
        first: Where the first page begins.
        of_runs: Whether it looks at runs, and so for one run too.
        drifts: What it may find.
        pages: So many times the rows of another observer are looked at: nearly all of them are as they should be.
    """

    name: str
    sql: str
    age: timedelta
    read: Read
    first: Place = _FIRST
    of_runs: bool = True
    pages: int = 1
    drifts: frozenset[Drift] = frozenset()

    def least(self, after: Mapping[tuple[Drift, str | None], timedelta]) -> timedelta:
        """Return how long something must have lasted, where services say so of their own kinds of work."""
        said = [length for (drift, _), length in after.items() if drift in self.drifts]
        return min([self.age, *said])


@dataclass(frozen=True, slots=True)
class Page:
    """What one look has found.

    Attributes:
        seen: Drifts, the oldest first.
        place: Where the next page begins; the first place when this was the last page.
        last: Whether there are no more pages.
    """

    seen: Sequence[Observation]
    place: Place
    last: bool


OBSERVERS: tuple[Observer, ...] = (
    Observer(
        "worker_lost",
        Sql.worker_lost,
        timedelta(seconds=15),
        drifting.worker_lost,
        drifts=frozenset({Drift.WORKER_LOST}),
    ),
    Observer(
        "not_told",
        Sql.not_told,
        timedelta(seconds=30),
        drifting.not_told,
        drifts=frozenset({Drift.NOT_TOLD, Drift.UNDO_STOPPED}),
    ),
    Observer(
        "signal_present",
        Sql.signal_present,
        timedelta(seconds=10),
        drifting.signal_present,
        pages=10,
        drifts=frozenset({Drift.SIGNAL_PRESENT}),
    ),
    Observer(
        "waits",
        Sql.waits,
        timedelta(seconds=10),
        drifting.waits,
        drifts=frozenset({Drift.SIGNAL_PRESENT, Drift.WAIT_OLD}),
    ),
    Observer("unknown", Sql.unknown, timedelta(0), drifting.unknown, drifts=frozenset({Drift.UNKNOWN})),
    Observer(
        "undo_failed",
        Sql.undo_failed,
        timedelta(0),
        drifting.undo_failed,
        drifts=frozenset({Drift.UNDO_STOPPED}),
    ),
    Observer(
        "undo_stopped",
        Sql.undo_stopped,
        timedelta(seconds=30),
        drifting.undo_stopped,
        drifts=frozenset({Drift.UNDO_STOPPED}),
    ),
    Observer(
        "letters",
        Sql.letters,
        timedelta(hours=1),
        drifting.letters,
        of_runs=False,
        pages=20,
        drifts=frozenset({Drift.LETTER_OPEN, Drift.OUTBOX_PARKED}),
    ),
    Observer(
        "holds",
        Sql.holds,
        timedelta(hours=1),
        drifting.holds,
        of_runs=False,
        pages=20,
        drifts=frozenset({Drift.KEY_HELD}),
    ),
    Observer(
        "lock_left",
        Sql.lock_left,
        timedelta(seconds=30),
        drifting.lock_left,
        first=("", ""),
        drifts=frozenset({Drift.LOCK_LEFT}),
    ),
)


async def look(
    connection: asyncpg.Connection[Any],
    observer: Observer,
    *,
    service: str | None,
    run: UUID | None = None,
    place: Place | None = None,
    page: int = 500,
    age: timedelta | None = None,
) -> Page:
    """Look through one page, in a transaction of the caller's in which `Sql.by_index` was executed.

    Args:
        service: Only its runs; None for those of all.
        run: Only this run, for observers that look at runs.
        place: Where to begin; None for the first.
        page: Most rows to look at.
        age: Instead of the observer's own.
    """
    begin, page = place or observer.first, page * observer.pages
    rows = await connection.fetch(observer.sql, service, run, age or observer.age, *begin, page)
    now = await connection.fetchval(Sql.now)
    seen = [observer.read(row, now) for row in rows if row["since"] is not None]
    full = rows[0]["page_n"] >= page and rows[0]["page_at"] is not None
    after = (rows[0]["page_at"], rows[0]["page_id"]) if full else observer.first
    return Page(seen, after, not full)


async def look_at_outbox(connection: asyncpg.Connection[Any]) -> Observation | None:
    """Return how far the outbox is behind, or None when nothing waits."""
    row = await connection.fetchrow(Sql.outbox, MOST_UNSENT)
    if row is None or row["since"] is None:
        return None
    return Observation(
        drift=Drift.OUTBOX_BEHIND,
        subject="outbox",
        label=f"outbox, topic {row['topic']}",
        observed=row["first"],
        state="BEHIND",
        since=row["since"],
        now=row["now"],
        evidence={"amount": row["amount"], "relay": row["relay"], "topic": row["topic"]},
    )


async def with_past(connection: asyncpg.Connection[Any], seen: Sequence[Observation]) -> list[Observation]:
    """Return the observations with what was decided about them before."""
    if not seen:
        return []
    names = {
        (one.drift.value, one.subject, version) for one in seen for version in (one.observed, told_as(one))
    }
    rows = await connection.fetch(Sql.decided, *map(list, zip(*names, strict=True)))
    past: dict[tuple[str, str, str], list[asyncpg.Record]] = {}
    for row in rows:
        past.setdefault((row["drift"], row["subject"], row["observed"]), []).append(row)
    return [_remembered(one, past) for one in seen]


def told_as(seen: Observation) -> str:
    """Return under which version persons are told: the episode's, for the row's own moves while the trouble lasts."""
    return seen.episode or seen.observed


def _remembered(
    seen: Observation, past: Mapping[tuple[str, str, str], Sequence[asyncpg.Record]]
) -> Observation:
    own = past.get((seen.drift.value, seen.subject, seen.observed), ())
    told = past.get((seen.drift.value, seen.subject, told_as(seen)), ())
    repairs = [row["at"] for row in own if row["decision"] in _REPAIRS]
    escalated = any(row["decision"] not in _REPAIRS for row in told)
    return replace(seen, repaired_at=max(repairs, default=None), escalated=escalated)


_REPAIRS = frozenset(action.value for action in Action) - {Action.NONE.value, Action.ESCALATE.value}


def by_queue(seen: Sequence[Observation]) -> list[Observation]:
    """Put work that no process serves, or takes, together by queue: one cause of many, told to persons once."""
    alone = [one for one in seen if not _of_queue(one)]
    groups: dict[tuple[str, str, Json, Drift], list[Observation]] = {}
    for one in seen:
        if _of_queue(one):
            groups.setdefault((one.tenant, one.service, one.evidence["queue"], one.drift), []).append(one)
    for (tenant, service, queue, _), members in groups.items():
        first = members[0]
        told = replace(
            first,
            subject=f"{tenant}/{service}/{queue}",
            label=f"{len(members)} of {service}, queue {queue}, first {first.label}",
            episode=f"{first.subject}/{first.since.isoformat()}",
            evidence={
                **first.evidence,
                "amount": len(members),
                "first": first.subject,
                "in_vain": True,
            },
        )
        alone.append(told)
    return alone


def _of_queue(seen: Observation) -> bool:
    """Whether it is a step that waits for its queue's workers, in vain although it was announced again."""
    in_vain = seen.repaired_at is not None and seen.now - seen.repaired_at >= PATIENCE
    return "workers" in seen.evidence and not seen.asked and (not seen.evidence["workers"] or in_vain)
