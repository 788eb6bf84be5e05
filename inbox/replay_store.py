"""The SQL of replays: what the inbox knows, how far a replay has come, and an inbox for one that applies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..schemas.envelope import Record
from ..streams.queries import Queries
from .replay import Known
from .store import InboxStore, Partition

if TYPE_CHECKING:
    from .store import Executor


class _Sql(Queries, file="replay.sql"):
    known: str
    floor: str
    begin: str
    audit: str
    load: str
    advance: str
    forget_tries: str


@dataclass(slots=True)
class Progress:
    """A replay, as its row keeps it.

    Attributes:
        begins: First offset to read, by partition.
        ends: Offset before which to stop, by partition.
        live: How far the consumer had read when it began, by partition.
        floor: Since when the inbox remembered then.
        nexts: Next offset to read, by partition.
        counts: Events by outcome.
        unidentified: Events without an id of their own.
        findings: The first events that are not simply applied, as JSON objects.
        report_bytes: Length of the report file.
        started_at: By the database's clock.
    """

    id: UUID
    consumer: str
    topic: str
    apply: bool
    begins: dict[int, int]
    ends: dict[int, int]
    live: dict[int, int]
    floor: datetime
    nexts: dict[int, int]
    started_at: datetime
    counts: dict[str, int] = field(default_factory=dict)
    unidentified: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    report_bytes: int = 0
    finished: bool = False


async def known_events(
    executor: Executor, consumer: str, ids: Sequence[UUID]
) -> tuple[dict[UUID, Known], datetime | None]:
    """Return the inbox rows of these identities, and up to when rows had been removed at that instant."""
    rows = await executor.fetch(_Sql.known, consumer, list(ids))
    found = {
        row["event_id"]: Known(
            row["fingerprint"], row["outcome"], (row["topic"], row["partition"], row["offset"]), row["at"]
        )
        for row in rows
        if row["event_id"] is not None
    }
    return found, rows[0]["purged_below"]


async def floor(executor: Executor, keep: timedelta) -> datetime:
    """Return since when the inbox remembers what was applied, by the database's clock."""
    found: datetime = await executor.fetchval(_Sql.floor, keep)
    return found


async def begin(executor: Executor, new: Progress) -> None:
    """Store a new replay, and take over when it began."""
    new.started_at = await executor.fetchval(
        _Sql.begin,
        new.id,
        new.consumer,
        new.topic,
        new.apply,
        _written(new.begins),
        _written(new.ends),
        _written(new.live),
        new.floor,
    )


async def audit(executor: Executor, new: Progress, entry: UUID, *, by: str, reason: str) -> None:
    """Write down who has events applied, and why.

    Args:
        entry: Id of the entry.
    """
    begins, ends = _written(new.begins), _written(new.ends)
    await executor.execute(_Sql.audit, entry, by, reason, new.id, new.consumer, new.topic, begins, ends)


async def load(executor: Executor, replay_id: UUID) -> Progress | None:
    """Return a replay as it was last stored; None when there is none."""
    row = await executor.fetchrow(_Sql.load, replay_id)
    if row is None:
        return None
    return Progress(
        id=replay_id,
        consumer=row["consumer"],
        topic=row["topic"],
        apply=row["apply"],
        begins=_read(row["begins"]),
        ends=_read(row["ends"]),
        live=_read(row["live"]),
        floor=row["floor"],
        nexts=_read(row["nexts"]),
        started_at=row["started_at"],
        counts=json.loads(row["counts"]),
        unidentified=row["unidentified"],
        findings=json.loads(row["findings"]),
        report_bytes=row["report_bytes"],
        finished=row["finished_at"] is not None,
    )


async def advance(executor: Executor, now: Progress) -> None:
    """Store how far a replay has come."""
    await executor.execute(
        _Sql.advance,
        now.id,
        _written(now.nexts),
        json.dumps(now.counts),
        now.unidentified,
        json.dumps(now.findings),
        now.report_bytes,
        now.finished,
    )


def _written(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in offsets.items()})


def _read(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}


class ReplayStore(InboxStore):
    """The inbox of a consumer for a replay: same rows, but neither its position nor its marks of what is being tried.

    Args:
        consumer: The inbox identity.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        # A consumer's name has no colon.
        self._tries_of = f"replay:{consumer}"
        self._tries = InboxStore(self._tries_of)

    async def suspects(self, executor: Executor, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """As of an inbox, from the marks of replays."""
        return await self._tries.suspects(executor, partitions)

    async def begin_batch(self, executor: Executor, last: Record) -> None:
        """As of an inbox, among the marks of replays."""
        await self._tries.begin_batch(executor, last)

    async def begin_attempt(
        self, executor: Executor, record: Record, *, counts: bool
    ) -> tuple[int, datetime]:
        """As of an inbox, among the marks of replays."""
        return await self._tries.begin_attempt(executor, record, counts=counts)

    async def hand_back(self, executor: Executor, record: Record) -> None:
        """As of an inbox, among the marks of replays."""
        await self._tries.hand_back(executor, record)

    async def end_attempt(self, executor: Executor, record: Record) -> None:
        """As of an inbox, among the marks of replays."""
        await self._tries.end_attempt(executor, record)

    async def move_position(self, executor: Executor, last: Record) -> None:
        """Leave the position alone: it is the live group's."""

    async def forget_tries(self, executor: Executor) -> None:
        """Remove the marks of replays that are over."""
        await executor.execute(_Sql.forget_tries, self._tries_of)
