"""The overview: how many runs live and how old they are, how the week went, how far outbox and consumers are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import asyncpg
from pydantic import BaseModel

from ...recovery.permissions import Scope
from ...schemas.states import RunState
from ...streams.queries import Queries
from .reading import snapshot

#: Most live runs, letters and events that are counted for a page; more are said as "100,000 and more".
MOST: Final = 100_000
#: Longest stretch that is counted for the page itself, when the tally has not come.
TAIL: Final = timedelta(minutes=15)

Window: TypeAlias = Literal["hour", "day", "week"]
WINDOWS: Final[tuple[Window, ...]] = ("hour", "day", "week")
#: What a person decided that the machine could not.
_BY_HAND = frozenset({"retry", "skip", "mark_succeeded", "compensate", "resume", "cancel"})
_UNDONE = frozenset({"COMPENSATED"})
_WELL = frozenset({"SUCCEEDED", "PARTIALLY_SUCCEEDED"})


class Sql(Queries, file="overview.sql"):
    """Queries of this module."""

    live: str
    tallied: str
    lately: str
    outbox: str
    beside: str
    consumers: str
    processes: str
    positions: str


class Live(BaseModel):
    """Live runs of one workflow in one state."""

    saga: str
    state: RunState
    amount: int
    oldest: datetime


class Lately(BaseModel):
    """How a stretch of time went.

    Attributes:
        ended: By state, how many runs ended so.
        seconds: How long they took in all.
        acts: By act, how many a person asked for and were carried out.
        repaired: How often something that stood in front of a person, or was unknown, went on; and
        repair_s: how long that took in all, in seconds.
    """

    started: int = 0
    ended: dict[str, int] = {}
    seconds: float = 0.0
    acts: dict[str, int] = {}
    repaired: int = 0
    repair_s: float = 0.0

    @property
    def runs(self) -> int:
        """Runs that ended."""
        return sum(self.ended.values())

    @property
    def well(self) -> float | None:
        """Share of those that did what they were started for; None without any."""
        return self._share(sum(self.ended.get(state, 0) for state in _WELL))

    @property
    def compensated(self) -> float | None:
        """Share of those that were undone."""
        return self._share(sum(self.ended.get(state, 0) for state in _UNDONE))

    @property
    def by_hand(self) -> float | None:
        """Acts of persons for each run that ended."""
        return self._share(sum(amount for act, amount in self.acts.items() if act in _BY_HAND))

    @property
    def mttr(self) -> timedelta | None:
        """Mean time until what was stuck went on."""
        return timedelta(seconds=self.repair_s / self.repaired) if self.repaired else None

    @property
    def took(self) -> timedelta | None:
        """Mean time from beginning to end."""
        return timedelta(seconds=self.seconds / self.runs) if self.runs else None

    def _share(self, amount: int) -> float | None:
        return amount / self.runs if self.runs else None


class Outbox(BaseModel):
    """How far the relay is behind.

    Attributes:
        amount: Committed events that it has not sent; at most `MOST`.
        oldest: Age of the oldest of them.
        leased: Whether a relay is at work.
        moved: When its position last moved.
    """

    amount: int
    oldest: timedelta | None
    leased: bool
    moved: datetime | None


class Consumer(BaseModel):
    """A consumer, as the database knows it.

    Attributes:
        partitions: Those that it has read from.
        applied: Sum of the offsets that it has come to.
        moved: When it last applied something.
        letters: Open dead letters, at most 1,001.
    """

    consumer: str
    partitions: int
    applied: int
    moved: datetime
    letters: int


class Process(BaseModel):
    """A live process."""

    service: str
    name: str
    roles: list[str]
    queues: list[str]
    started_at: datetime
    expires_at: datetime


class Beside(BaseModel):
    """What is stuck beside runs, each at most `MOST`; instants are those of the oldest."""

    letters: int
    letters_since: datetime | None
    holds: int
    unknown: int
    unknown_since: datetime | None
    workers: int


class Overview(BaseModel):
    """Everything at a glance.

    Attributes:
        capped: More runs live than were counted.
        lately: By window.
        by_saga: By workflow, the last day.
        upto: Up to when what ended is counted.
        whole: Whether that is now; else the tally is late, and what has ended since is missing.
    """

    now: datetime
    live: list[Live]
    capped: bool
    lately: dict[Window, Lately]
    by_saga: dict[str, Lately]
    upto: datetime | None
    whole: bool
    outbox: Outbox | None
    beside: Beside | None
    consumers: list[Consumer]
    processes: list[Process]

    def amount(self, *states: RunState) -> int:
        """Live runs in these states; in all without any."""
        return sum(live.amount for live in self.live if not states or live.state in states)

    def oldest(self, *states: RunState) -> datetime | None:
        """When the oldest of them began."""
        return min((live.oldest for live in self.live if live.state in states), default=None)


async def overview(connection: asyncpg.Connection[Any], scope: Scope) -> Overview:
    """Read the overview.

    Args:
        connection: To the database.
        scope: What may be seen. What belongs to no tenant and workflow (outbox, consumers, processes) is told to who
            may see all workflows.
    """
    allowed = scope.parameters()
    async with snapshot(connection):
        live = await connection.fetch(Sql.live, *allowed, MOST + 1)
        place = await connection.fetchrow(Sql.tallied)
        assert place is not None
        now, upto = place["now"], place["upto"]
        tail = max(upto, now - TAIL) if upto is not None else now - TAIL
        rows = await connection.fetch(Sql.lately, *allowed, tail, now)
        whole = scope.sagas is None and scope.tenants is None
        outbox = await connection.fetchrow(Sql.outbox, MOST) if whole else None
        beside = await connection.fetchrow(Sql.beside, MOST) if whole else None
        consumers = await connection.fetch(Sql.consumers) if whole else []
        processes = await connection.fetch(Sql.processes) if whole else []
    return Overview(
        now=now,
        live=[Live(**row) for row in live],
        capped=sum(row["amount"] for row in live) > MOST,
        lately={window: _lately(rows, window) for window in WINDOWS},
        by_saga=_by_saga(rows),
        upto=upto,
        whole=upto is not None and upto >= now - TAIL,
        outbox=None if outbox is None else Outbox(**outbox),
        beside=None if beside is None else Beside(**beside),
        consumers=[Consumer(**row) for row in consumers],
        processes=[Process(**row) for row in processes],
    )


async def positions(connection: asyncpg.Connection[Any], scope: Scope) -> dict[tuple[str, str, int], int]:
    """Return the next offset of each consumer, topic and partition, to who may see all workflows."""
    if scope.parameters() != (None, None):
        return {}
    rows = await connection.fetch(Sql.positions)
    return {(row["consumer"], row["topic"], row["partition"]): row["next_offset"] for row in rows}


def _lately(rows: Iterable[Any], window: Window) -> Lately:
    found = Lately(ended={}, acts={})
    for row in rows:
        amount, seconds = row[window], row[f"{window}_s"]
        kind, _, name = row["what"].partition(".")
        if not amount:
            continue
        if kind == "run":
            found.ended[name] = found.ended.get(name, 0) + amount
            found.seconds += seconds
        elif kind == "started":
            found.started += amount
        else:
            if kind == "act":
                found.acts[name] = found.acts.get(name, 0) + amount
            found.repaired += amount
            found.repair_s += seconds
    return found


def _by_saga(rows: Iterable[Any]) -> dict[str, Lately]:
    sorted_: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        sorted_[row["saga"]].append(row)
    return {saga: _lately(its, "day") for saga, its in sorted_.items()}
