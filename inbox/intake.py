"""Once-only consumption: records of one partition in, effects and inbox rows in one transaction out.

A batch is one transaction. Only what a handler itself raises takes a batch apart, so that the failing event is tried
alone; trouble underneath is raised to the reader, which brings the whole batch again, and nobody is parked. Before a
batch or a lone try begins, that is committed: whoever takes over after a process died goes one by one through what it
had begun, and an event that keeps killing its process is counted and parked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from ..schemas.envelope import Record
from ..schemas.ids import Clock, Randomness, SystemRandomness
from ..schemas.transaction import Publisher, Transaction
from ..streams.database import Database
from ..streams.tracing import span
from . import model
from .consumer import Consumer
from .failures import at_commit, is_infrastructure, is_lost
from .model import Act, Item, Plan, Reason
from .store import InboxStore, Partition

_HAND_BACK = 1.0


@dataclass(slots=True)
class Counts:
    """What an intake has done since it began.

    Attributes:
        unidentified: Events without an id, which got one from topic, partition and offset.
    """

    applied: int = 0
    duplicates: int = 0
    parked: int = 0
    passed: int = 0
    unidentified: int = 0


class _HandlerFailed(Exception):
    """What a handler raised, or the commit on its behalf (`item` is None); the cause says it."""

    def __init__(self, item: Item | None) -> None:
        super().__init__()
        self.item = item


class Intake:
    """Applies records for a consumer; give `handle` and `positions` to a `GroupReader`.

    Args:
        consumer: Its handlers and options.
        database: Where inbox and effects are; its settings say how long the inbox remembers.
        publisher: What `Transaction.publish` calls; it finds the consumed event's envelope on the transaction.
        clock: Wall time for the inbox's retention and for retries.
        dice: Jitter of retries.
    """

    def __init__(
        self,
        consumer: Consumer,
        database: Database,
        publisher: Publisher,
        *,
        clock: Clock,
        dice: Randomness | None = None,
    ) -> None:
        self.counts = Counts()
        self._consumer = consumer
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._keep = database.settings.keep_inbox
        self._dice = dice or SystemRandomness()
        self._store = InboxStore(consumer.name)
        self._suspects: dict[Partition, int] = {}
        self._called_off: set[tuple[str, int, int]] = set()

    async def positions(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the stored next offsets of partitions that are being taken over."""
        pool = self._database.pool
        suspects = await self._store.suspects(pool, partitions)
        for partition in partitions:
            self._suspects[partition] = suspects.get(partition, -1)
        return await self._store.positions(pool, partitions)

    async def handle(self, records: Sequence[Record]) -> None:
        """Apply records of one partition, in order; returning means that all of them are done for good.

        Raises:
            Exception: Trouble underneath; the same records are to be brought again.
        """
        items = self._read(records)
        pieces = deque(model.suspected(items, await self._suspect(records[0])))
        while pieces:
            alone, some = pieces.popleft()
            if alone:
                await self._one_by_one(some)
                continue
            try:
                await self._together(some)
            except _HandlerFailed as failed:
                pieces.extendleft(reversed(model.split(some, failed.item)))

    def _read(self, records: Sequence[Record]) -> list[Item]:
        oldest_ms = model.oldest_kept(self._clock.now(), self._keep)
        find, unknown = self._consumer.handler_of, self._consumer.unknown
        items = [model.read(record, find, unknown=unknown, oldest_ms=oldest_ms) for record in records]
        self.counts.unidentified += sum(
            item.envelope is not None and not item.envelope.identified for item in items
        )
        return items

    async def _suspect(self, first: Record) -> int:
        partition = (first.topic, first.partition)
        if partition not in self._suspects:
            found = await self._store.suspects(self._database.pool, [partition])
            self._suspects[partition] = found.get(partition, -1)
        return self._suspects[partition]

    async def _together(self, items: Sequence[Item]) -> None:
        last = items[-1].record
        if all(item.act is not Act.HANDLE for item in items):
            await self._apply(items)
            return
        await self._store.begin_batch(self._database.pool, last)
        try:
            await self._apply(items)
        except asyncio.CancelledError:
            await self._hand_back(last)
            raise

    async def _one_by_one(self, items: Sequence[Item]) -> None:
        known = await self._store.fingerprints(self._database.pool, [item.id for item in items])
        for item in items:
            if item.act is Act.HANDLE and item.id not in known:
                await self._alone(item)
            else:
                await self._apply([item])

    async def _alone(self, item: Item) -> None:
        """Try one event until it is applied or parked."""
        record, retry = item.record, self._consumer.retry
        place = (record.topic, record.partition, record.offset)
        while True:
            attempts, first_at = await self._store.begin_attempt(
                self._database.pool, record, counts=place not in self._called_off
            )
            self._called_off.discard(place)
            if attempts > retry.attempts:
                message = f"{attempts - 1} tries of this event ended with the process that made them"
                await self._park(
                    item, Reason("HANDLE", "PROCESS_DIED", message, True, attempts - 1, first_at)
                )
                return
            try:
                await self._apply([_tried(item, attempts)], alone=True)
            except _HandlerFailed as failed:
                cause = failed.__cause__
                if not model.may_retry(retry, attempts, first_at, self._clock.now()):
                    await self._park(item, _failure(cause, attempts, first_at))
                    return
            except asyncio.CancelledError:
                await self._hand_back(record)
                raise
            except Exception:
                self._called_off.add(place)
                raise
            else:
                return
            await asyncio.sleep(model.delay(retry, attempts, self._dice.uniform()))

    async def _apply(self, items: Sequence[Item], *, alone: bool = False) -> None:
        """Apply items in one transaction.

        Raises:
            _HandlerFailed: A handler raised, or the commit failed for what it wrote.
            Exception: Trouble underneath.
        """
        handled = False
        try:
            async with self._database.transaction(self._publisher) as tx:
                connection = tx.connection
                plan = await self._claim(connection, items)
                for item in plan.handle:
                    handled = True
                    await self._call(tx, item)
                await self._store.insert_letters(connection, plan.park)
                await self._store.move_position(connection, items[-1].record)
                if alone:
                    await self._store.end_attempt(connection, items[-1].record)
        except _HandlerFailed:
            raise
        except Exception as error:
            if not handled or at_commit(error):
                raise
            raise _HandlerFailed(None) from error
        self._count(plan, items)

    async def _claim(self, connection: Any, items: Sequence[Item]) -> Plan:
        rows = model.candidates(items)
        inserted = await self._store.insert(connection, rows, {})
        stored: Mapping[UUID, bytes] = {}
        if len(inserted) < len(rows):
            # A statement of its own: its snapshot shows what the insert had to wait for.
            others = [row.id for row in rows if row.id not in inserted]
            stored = await self._store.fingerprints(connection, others)
        return model.plan(items, inserted, stored)

    async def _call(self, tx: Transaction, item: Item) -> None:
        assert item.handler is not None and item.envelope is not None
        envelope, connection = item.envelope, tx.connection
        scoped = Transaction(connection, self._publisher, tx._session, envelope)
        try:
            with span(
                f"process {envelope.type}",
                # Empty text is no valid parent: an event without one begins a trace of its own.
                traceparent=envelope.traceparent or "",
                kind="consumer",
                attributes={
                    "messaging.system": "kafka",
                    "messaging.consumer.group.name": self._consumer.name,
                    "messaging.destination.name": envelope.topic,
                    "messaging.message.id": envelope.event_id,
                },
            ):
                await item.handler(item.event, scoped)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _HandlerFailed(item) from error
        except Exception as error:
            if is_infrastructure(error) or is_lost(connection):
                raise
            raise _HandlerFailed(item) from error
        finally:
            scoped.closed = True

    async def _park(self, item: Item, reason: Reason) -> None:
        """Store letter, inbox row and position in one transaction; if somebody else has the event, only the latter."""
        async with self._database.transaction(self._publisher) as tx:
            connection = tx.connection
            if await self._store.insert(connection, [item], {item.id: "PARKED"}):
                await self._store.insert_letters(connection, [(item, reason)])
                self.counts.parked += 1
            await self._store.move_position(connection, item.record)
            await self._store.end_attempt(connection, item.record)

    async def _hand_back(self, record: Record) -> None:
        """The grace time is over: what was begun is no unclean exit."""
        with suppress(Exception):
            async with asyncio.timeout(_HAND_BACK):
                await self._store.hand_back(self._database.pool, record)

    def _count(self, plan: Plan, items: Sequence[Item]) -> None:
        self.counts.applied += len(plan.handle)
        self.counts.parked += len(plan.park)
        self.counts.duplicates += plan.duplicates
        self.counts.passed += sum(item.act is Act.PASS for item in items)


def _tried(item: Item, attempts: int) -> Item:
    assert item.envelope is not None
    return replace(item, envelope=replace(item.envelope, delivery=attempts))


def _failure(cause: BaseException | None, attempts: int, first_at: datetime) -> Reason:
    message = f"{type(cause).__name__}: {cause}"
    return Reason("HANDLE", "HANDLER_FAILED", message, True, attempts, first_at)
