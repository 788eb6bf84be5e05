"""The outbox with its relay, how far consumers have read, and replays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ...inbox.replay import ReplayOutcome
from ...recovery.permissions import Scope
from ...schemas.errors import StateError
from ...streams.queries import Queries
from .model import View

#: Most rows of the outbox that are counted.
COUNTED = 100_000
#: A replay that has told nothing for so long was interrupted.
SILENT = timedelta(seconds=30)


class _Sql(Queries, file="flow.sql"):
    outbox: str
    parked: str
    topics: str
    positions: str
    replays: str
    findings: str
    consumers: str


class Parked(View):
    """Events of one topic that the relay has put aside for one reason."""

    topic: str
    code: str
    amount: int
    asked: int
    recoverable: bool
    first: int
    oldest: datetime
    message: str


class Topic(View):
    """A topic that somebody has published to.

    Attributes:
        on_park: What an event that cannot be sent does to later ones of its key: continue or hold.
    """

    name: str
    compacted: bool
    on_park: str
    seen_at: datetime


class Position(View):
    """How far a consumer has read a topic: when it last got on."""

    consumer: str
    topic: str
    partitions: int
    moved_at: datetime


class Outbox(View):
    """How far the relay is.

    Attributes:
        waiting: Events that are committed and not sent, at most COUNTED.
        oldest: When the oldest of them was written.
        leader: The process that sends; None when nobody does now.
        epoch: Counts leaders; None when none has ever been there.
        position: The snapshot up to which all is sent, and the last row within the next one.
        restored_copy: Whether this is a copy of the database that the position was stored in.
        partition_days: For how many days ahead there are partitions.
    """

    waiting: int
    oldest: datetime | None
    leader: UUID | None
    epoch: int | None
    position: str | None
    position_at: datetime | None
    restored_copy: bool
    partition_days: int
    parked: list[Parked]
    topics: list[Topic]
    positions: list[Position]
    now: datetime


async def outbox(connection: asyncpg.Connection[Any]) -> Outbox:
    """Return the state of the outbox, of what is parked, and how far consumers have read."""
    row = await connection.fetchrow(_Sql.outbox, COUNTED)
    assert row is not None
    stored = row["position_at"] is not None
    return Outbox(
        waiting=row["amount"],
        oldest=row["oldest"],
        leader=row["owner"] if row["leads"] else None,
        epoch=row["epoch"] or None,
        position=f"{row['previous']} → {row['current']}, row {row['last_seq']}" if stored else None,
        position_at=row["position_at"],
        restored_copy=row["at_home"] is False,
        partition_days=row["partition_days"],
        parked=[Parked(**one) for one in await connection.fetch(_Sql.parked)],
        topics=[Topic(**one) for one in await connection.fetch(_Sql.topics)],
        positions=[Position(**one) for one in await connection.fetch(_Sql.positions)],
        now=row["now"],
    )


class Replay(View):
    """A slice of a topic that was held against a consumer's inbox.

    Attributes:
        begins, ends: Offsets by partition.
        done, total: Offsets read, and to read.
        counts: Events by outcome.
        unidentified: Events that had no id of their own.
        interrupted: Whether it has not ended and nobody seems to be at it.
    """

    id: UUID
    consumer: str
    topic: str
    apply: bool
    begins: dict[int, int]
    ends: dict[int, int]
    done: int
    total: int
    counts: dict[str, int]
    unidentified: int
    started_at: datetime
    at: datetime
    finished_at: datetime | None
    interrupted: bool

    @property
    def slice(self) -> str:
        """The offsets, as `milepost replay` writes them."""
        return (
            ",".join(f"{p}:{begin}-{self.ends[p]}" for p, begin in sorted(self.begins.items())) or "(nothing)"
        )


class Finding(View):
    """An event that is missing, conflicts, or was parked."""

    partition: int
    offset: int
    outcome: str
    id: str
    event_id: str
    type: str | None
    key: str | None
    detail: str


class Replays(View):
    """Replays, the youngest first; `next` is given as `before` for the next page."""

    replays: list[Replay]
    next: UUID | None


async def replays(
    connection: asyncpg.Connection[Any], *, before: UUID | None = None, limit: int = 50
) -> Replays:
    """Return a page of replays."""
    rows = await connection.fetch(_Sql.replays, before, None, limit + 1)
    found = [_replay(row) for row in rows[:limit]]
    return Replays(replays=found, next=found[-1].id if len(rows) > limit else None)


async def replay(connection: asyncpg.Connection[Any], replay_id: UUID) -> tuple[Replay, list[Finding]]:
    """Return a replay with what it has found.

    Raises:
        StateError: MP777 when there is none.
    """
    row = await connection.fetchrow(_Sql.replays, None, replay_id, 1)
    if row is None:
        raise StateError("MP777", f"replay {replay_id}: there is none, or it has been removed.")
    found = json.loads(await connection.fetchval(_Sql.findings, replay_id))
    names = set(Finding.model_fields)
    return _replay(row), [
        Finding(**{name: value for name, value in one.items() if name in names}) for one in found
    ]


def _replay(row: Any) -> Replay:
    begins, ends, nexts = (_offsets(row[name]) for name in ("begins", "ends", "nexts"))
    made = {
        name: row[name]
        for name in ("id", "consumer", "topic", "apply", "unidentified", "started_at", "at", "finished_at")
    }
    counts: Mapping[str, int] = json.loads(row["counts"])
    return Replay(
        **made,
        begins=begins,
        ends=ends,
        done=sum(max(0, min(nexts.get(p, begin), ends[p]) - begin) for p, begin in begins.items()),
        total=sum(ends[p] - begin for p, begin in begins.items()),
        counts={
            outcome.value: counts[outcome.value] for outcome in ReplayOutcome if counts.get(outcome.value)
        },
        interrupted=row["finished_at"] is None and row["now"] - row["at"] > SILENT,
    )


def _offsets(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}


async def replayable(connection: asyncpg.Connection[Any]) -> list[tuple[str, str]]:
    """Return consumers with the topics that each has read."""
    return [(row["consumer"], row["topic"]) for row in await connection.fetch(_Sql.consumers)]


def whole(scope: Scope) -> bool:
    """Whether a reader may see what belongs to no tenant and no saga: the outbox, replays, settings."""
    return scope.tenants is None and scope.sagas is None
