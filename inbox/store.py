"""The inbox's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from ..schemas.envelope import Record
from ..streams.queries import Queries
from .letter import scope_of
from .model import Act, Item

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Executor: TypeAlias = asyncpg.Pool[Any] | asyncpg.Connection[Any] | PoolConnectionProxy[Any]

Partition: TypeAlias = tuple[str, int]
_OUTCOMES = {Act.PARK: "PARKED", Act.HANDLE: "APPLIED", Act.PASS: "APPLIED"}


class _Sql(Queries):
    positions: str
    suspects: str
    begin_batch: str
    begin_attempt: str
    hand_back: str
    end_attempt: str
    insert_inbox: str
    forget: str
    answers: str
    purged_below: str
    fingerprints: str
    move_position: str
    insert_by_key: str


class InboxStore:
    """Rows of one consumer.

    Args:
        consumer: The inbox identity.
    """

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self.scope = scope_of(consumer)

    async def positions(self, executor: Executor, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the stored next offsets of those partitions that have one."""
        rows = await executor.fetch(_Sql.positions, self._consumer, *_columns(partitions))
        return {(row["topic"], row["partition"]): row["next_offset"] for row in rows}

    async def suspects(self, executor: Executor, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return, by partition, the offset up to which somebody began and did not finish."""
        rows = await executor.fetch(_Sql.suspects, self._consumer, *_columns(partitions))
        return {(row["topic"], row["partition"]): row["offset"] for row in rows}

    async def begin_batch(self, executor: Executor, last: Record) -> None:
        """Commit that a batch up to `last` has begun."""
        await executor.execute(_Sql.begin_batch, self._consumer, *_place(last))

    async def begin_attempt(
        self, executor: Executor, record: Record, *, counts: bool
    ) -> tuple[int, datetime]:
        """Commit that a record is being tried alone.

        Args:
            counts: False when the try before was called off, so that this one takes its number.

        Returns:
            Number of this try, from 1, and when the first one began.
        """
        row = await executor.fetchrow(_Sql.begin_attempt, self._consumer, *_place(record), int(counts))
        assert row is not None
        return row["attempts"], row["first_at"]

    async def hand_back(self, executor: Executor, record: Record) -> None:
        """Commit that what began with `record` was called off."""
        await executor.execute(_Sql.hand_back, self._consumer, *_place(record))

    async def end_attempt(self, executor: Executor, record: Record) -> None:
        """Remove the mark of a try."""
        await executor.execute(_Sql.end_attempt, self._consumer, *_place(record))

    async def insert(
        self, executor: Executor, items: Sequence[Item], outcomes: Mapping[UUID, str]
    ) -> dict[UUID, str]:
        """Insert inbox rows of one partition, in the given order; rows that are there stay.

        Args:
            outcomes: APPLIED or PARKED by identity, where it is not the item's own.

        Returns:
            Identities that are new, each with the id of the transaction that inserted it.
        """
        if not items:
            return {}
        row = await executor.fetchrow(_Sql.insert_inbox, *self._marks(items, outcomes))
        assert row is not None
        new = row["event_ids"]
        return dict.fromkeys([item.id for item in items] if new is None else new, row["inserted_by"])

    async def insert_by_key(
        self, executor: Executor, items: Sequence[Item], keys: Sequence[bytes]
    ) -> tuple[dict[UUID, str], set[bytes]]:
        """Insert inbox rows as `insert` does, and tell in the same statement which keys are held.

        Args:
            keys: Names of the keys of all records in the batch.
        """
        if not items:
            return {}, set()
        rows = await executor.fetch(_Sql.insert_by_key, *self._marks(items, {}), self.scope, list(keys))
        inserted = {row["event_id"]: row["inserted_by"] for row in rows if row["event_id"] is not None}
        return inserted, {row["held"] for row in rows if row["held"] is not None}

    def _marks(self, items: Sequence[Item], outcomes: Mapping[UUID, str]) -> tuple[Any, ...]:
        first = items[0].record
        tenants = [item.tenant for item in items]
        parked = bool(outcomes) or any(item.act is Act.PARK for item in items)
        return (
            self._consumer,
            [item.id for item in items],
            tenants if any(tenants) else [],
            [item.fingerprint for item in items],
            [outcomes.get(item.id) or _OUTCOMES[item.act] for item in items] if parked else [],
            first.topic,
            first.partition,
            [item.record.offset for item in items],
        )

    async def forget(self, executor: Executor, marks: Mapping[UUID, str]) -> None:
        """Remove inbox rows, where they are the ones that those transactions inserted."""
        await executor.execute(_Sql.forget, self._consumer, list(marks), list(marks.values()))

    async def answers(self, executor: Executor) -> bool:
        """Tell whether the database answers and takes writes."""
        return bool(await executor.fetchval(_Sql.answers))

    async def purged_below(self, executor: Executor) -> tuple[datetime, datetime | None]:
        """Return the database's time, and up to when inbox rows have been removed; None when none were."""
        row = await executor.fetchrow(_Sql.purged_below)
        assert row is not None
        return row["now"], row["purged_below"]

    async def fingerprints(self, executor: Executor, ids: Sequence[UUID]) -> dict[UUID, bytes]:
        """Return the fingerprints of those identities that have a row."""
        if not ids:
            return {}
        rows = await executor.fetch(_Sql.fingerprints, self._consumer, list(ids))
        return {row["event_id"]: row["fingerprint"] for row in rows}

    async def move_position(self, executor: Executor, last: Record) -> int | None:
        """Store that everything up to `last` is done; never moves back.

        Returns:
            The position before, 0 without one; None where none is kept.
        """
        before = await executor.fetchval(
            _Sql.move_position, self._consumer, last.topic, last.partition, last.offset + 1
        )
        return int(before or 0)


def _columns(partitions: Sequence[Partition]) -> tuple[list[str], list[int]]:
    return [topic for topic, _ in partitions], [number for _, number in partitions]


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
