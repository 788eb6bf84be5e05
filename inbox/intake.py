"""Once-only consumption: records of one partition in, effects and inbox rows in one transaction out.

A batch is one transaction. Only what a handler itself raises takes a batch apart, so that the failing event is tried
alone; trouble underneath is raised to the reader, which brings the whole batch again, and nobody is parked. Before a
batch or a lone try begins, that is committed: whoever takes over after a process died goes one by one through what it
had begun, and an event that keeps killing its process is counted and parked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from ..schemas.envelope import Record
from ..schemas.ids import Clock, Randomness, SystemRandomness
from ..schemas.transaction import Publisher
from ..streams.database import Database
from ..streams.reader_lane import getting_on
from . import model
from .answers import to_begin
from .barrier import Barriers
from .calling import call
from .collecting import uncollected
from .consumer import Consumer, PreparedConsumer
from .counts import Counts
from .failures import (
    HandlerFailed,
    Judge,
    Underneath,
    another_try,
    at_commit,
    ended_transaction,
    failure,
)
from .letters import Letters, Report
from .memory import Memory
from .model import Act, Item, Plan, Reason
from .past import StoredPast
from .pieces import delay, may_retry, split, suspected, tried
from .store import InboxStore, Partition
from .together import runs

_HAND_BACK = 1.0
_ANSWER = 5.0

#: Times in a row that a batch may meet trouble underneath before its events are tried one by one, and counted.
PATIENCE = 5


class Intake:
    """Applies records for a consumer; give `handle`, `positions` and `past` to a `GroupReader`.

    Args:
        consumer: Its handlers and options.
        database: Where inbox and effects are; its settings say how long the inbox remembers.
        publisher: What `Transaction.publish` calls; it finds the consumed event's envelope on the transaction.
        clock: Elapsed time; wall time is corrected to the database's.
        dice: Jitter of retries.
        unlimited: Topics that keep their records for good (see `Memory`).
        judge: Says of what a handler raised whether another try may help.
        store: Another inbox than the consumer's plain one.
        report: Told of every new dead letter, in its transaction.
    """

    def __init__(
        self,
        consumer: Consumer,
        database: Database,
        publisher: Publisher,
        *,
        clock: Clock,
        dice: Randomness | None = None,
        unlimited: Collection[str] = (),
        judge: Judge = another_try,
        store: InboxStore | None = None,
        report: Report | None = None,
    ) -> None:
        self.counts = Counts(consumer=consumer.name)
        for event in consumer.events:
            event.milepost_spec.codec.check()
        self._consumer = consumer
        self._database = database
        self._publisher = publisher
        self._dice = dice or SystemRandomness()
        self._store = store or InboxStore(consumer.name)
        self._memory = Memory(self._store, database, clock, unlimited)
        self.past = StoredPast(consumer.name, database, self._store, self._made_anew)
        self._judge = judge
        self._letters = Letters(consumer.name, hold_key=consumer.hold_key, report=report)
        self._suspects: dict[Partition, int] = {}
        self._called_off: set[tuple[str, int, int]] = set()
        self._trouble: dict[Partition, int] = {}

    async def positions(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the stored next offsets of partitions that are being taken over."""
        pool = self._database.pool
        suspects = await self._store.suspects(pool, partitions)
        for partition in partitions:
            self._suspects[partition] = suspects.get(partition, -1)
            self._trouble.pop(partition, None)
        stored = await self._store.positions(pool, partitions)
        self._memory.taken_over(partitions, stored)
        self.past.found(partitions, stored)
        return stored

    def _made_anew(self, partition: Partition) -> None:
        self._memory.taken_over([partition], {})
        self._suspects[partition] = -1

    async def handle(self, records: Sequence[Record]) -> None:
        """Apply records of one partition, in order; returning means that all of them are done for good.

        Raises:
            Exception: Trouble underneath; the same records are to be brought again.
        """
        partition = (records[0].topic, records[0].partition)
        items = self._read(records, await self._memory.oldest_ms(), await self._memory.done_below(partition))
        distrusted = self._trouble.get(partition, 0) >= PATIENCE
        suspect = items[-1].record.offset if distrusted else await self._suspect(partition)
        try:
            await self._in_pieces(deque(suspected(items, suspect)))
        except Underneath as trouble:
            self._trouble[partition] = self._trouble.get(partition, 0) + 1
            error = trouble.error
        else:
            self._trouble.pop(partition, None)
            return
        raise error

    async def _in_pieces(self, pieces: deque[tuple[bool, Sequence[Item]]]) -> None:
        while pieces:
            alone, some = pieces.popleft()
            if alone:
                await self._one_by_one(some)
                continue
            try:
                await self._together(some)
            except HandlerFailed as failed:
                pieces.extendleft(reversed(split(some, failed.item, failed.last)))

    def _read(self, records: Sequence[Record], oldest_ms: float, done_below: int | None) -> list[Item]:
        find, how = self._consumer.handler_of, self._consumer.unknown
        with uncollected():
            items = [
                model.read(one, find, how, oldest_ms=oldest_ms, done_below=done_below) for one in records
            ]
        self.counts.read(items)
        return items

    async def _suspect(self, partition: Partition) -> int:
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
                await self._apply([tried(item, attempts)], alone=True)
            except HandlerFailed as failed:
                cause = failed.__cause__
            except Underneath as trouble:
                if not await self._is_its_own(record):
                    self._called_off.add(place)
                    raise
                cause = trouble.error
            except asyncio.CancelledError:
                await self._hand_back(record)
                raise
            except Exception:
                self._called_off.add(place)
                raise
            else:
                return
            judged = self._judge(cause)
            wait = delay(retry, attempts, self._dice.uniform(), judged.retry_after)
            again = judged.again and may_retry(retry, attempts, first_at, self._memory.now(), wait)
            # Who ends its transaction does so again, and what it has committed meanwhile would be there twice.
            if not again or ended_transaction(cause):
                await self._park(item, failure(item, cause, judged, attempts, first_at))
                return
            getting_on(wait)
            await asyncio.sleep(wait)

    async def _is_its_own(self, record: Record) -> bool:
        """Tell whether trouble underneath, met time and again while the database works, is the event's after all."""
        if self._trouble.get((record.topic, record.partition), 0) < PATIENCE:
            return False
        try:
            async with asyncio.timeout(_ANSWER):
                return await self._store.answers(self._database.pool)
        except Exception:
            return False

    async def _apply(self, items: Sequence[Item], *, alone: bool = False) -> None:
        """Apply items in one transaction.

        Raises:
            HandlerFailed: A handler raised, or the commit failed for what it wrote.
            Underneath: Trouble underneath, met by a handler or the commit.
            Exception: Trouble underneath, before any handler.
        """
        handled = False
        try:
            async with self._database.transaction(self._publisher) as tx:
                connection = tx.connection
                plan, held = await self._claim(connection, items)
                if isinstance(self._consumer, PreparedConsumer):
                    await self._consumer.prepare(tx, plan.events())
                shared, handled = Barriers(connection, self._consumer.name), bool(plan.handle)
                if len(wanted := to_begin(plan.handle)) > 1:
                    await shared.begin(wanted)
                for run in runs(plan.handle):
                    await call(self._consumer.name, self._publisher, tx, *run, shared=shared)
                await shared.store()
                await self._letters.park(connection, plan.park, held)
                await self.past.move(connection, items[-1].record)
                if alone:
                    await self._store.end_attempt(connection, items[-1].record)
        except (HandlerFailed, Underneath) as failed:
            if failed.ended:
                # It may have committed the marks of events that nobody has handled yet.
                await self._store.forget(self._database.pool, plan.unfinished(failed.item))
                await shared.abandoned(self._database.pool)
            raise
        except Exception as error:
            if not handled:
                raise
            if at_commit(error):
                raise Underneath(error) from error
            raise HandlerFailed from error
        self.past.moved(items[-1].record)
        self.counts.done(plan, items)

    async def _claim(self, connection: Any, items: Sequence[Item]) -> tuple[Plan, Collection[bytes]]:
        """Insert the inbox rows; return what is to be done, and which keys were found held."""
        rows, held = model.candidates(items), set[bytes]()
        names = model.hold_names(items) if self._consumer.hold_key else []
        if names:
            inserted, held = await self._store.insert_by_key(connection, rows, names)
        else:
            inserted = await self._store.insert(connection, rows, {})
        stored: Mapping[UUID, bytes] = {}
        if len(inserted) < len(rows):
            # Statements of their own: their snapshots show what the insert had to wait for.
            others = [row.id for row in rows if row.id not in inserted]
            stored = await self._store.fingerprints(connection, others)
            held = await self._letters.held(connection, items[0].record.topic, names) if names else held
        plan = model.plan(items, inserted, stored, held if self._consumer.hold_key else None)
        if plan.behind:
            await self._letters.mark_parked(connection, plan.behind)
        return plan, held

    async def _park(self, item: Item, reason: Reason) -> None:
        """Store letter, inbox row and position in one transaction; if somebody else has the event, only the latter."""
        async with self._database.transaction(self._publisher) as tx:
            connection = tx.connection
            if await self._store.insert(connection, [item], {item.id: "PARKED"}):
                await self._letters.park(connection, [(item, reason)])
                self.counts.park(1)
            await self.past.move(connection, item.record)
            await self._store.end_attempt(connection, item.record)
        self.past.moved(item.record)

    async def _hand_back(self, record: Record) -> None:
        """The grace time is over: what was begun is no unclean exit."""
        with suppress(Exception):
            async with asyncio.timeout(_HAND_BACK):
                await self._store.hand_back(self._database.pool, record)
