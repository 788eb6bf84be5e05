"""One partition's task: takes its records in order, has them handled, says what is done."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Protocol, TypeAlias
from weakref import WeakKeyDictionary

from ..schemas.envelope import Record
from ..schemas.ids import Clock, Randomness
from .kafka_poll import Partition
from .reader_start import MARGIN, Known, Past, StartAgain, doubtful, find_start, removed
from .words import words_of

logger = logging.getLogger("milepost.reader")

Handle: TypeAlias = Callable[[Sequence[Record]], Awaitable[None]]
Positions: TypeAlias = Callable[[Sequence[Partition]], Awaitable[Mapping[Partition, int]]]

_BYTES = 16 * 1024 * 1024
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 30.0
_ASK = 5.0


def getting_on(rest: float = 0.0) -> None:
    """Say from within a call of `handle` that it gets on, however long it takes as a whole.

    Args:
        rest: Seconds for which it is now going to wait, and knows why.
    """
    lane = _handling.get()
    if lane is not None and lane._busy is not None:
        lane._busy = lane._clock.monotonic() + rest


class Place(Protocol):
    """What a lane needs of the group session it belongs to."""

    async def committed(self, partition: Partition) -> int | None: ...
    async def bounds(self, partition: Partition) -> tuple[int, int]: ...
    async def sent_since(self, partition: Partition, instant: datetime) -> int | None: ...
    async def seek(self, partition: Partition, offset: int | None) -> None: ...
    def pause(self, partition: Partition) -> None: ...
    def resume(self, partition: Partition) -> None: ...


class Lane:
    """The records of one partition during one assignment.

    It begins paused and unplaced: records offered before it has sought its start are dropped. A full lane
    pauses its partition, so memory is bounded while the poll loop goes on.

    Args:
        partition: Topic and number.
        place: The group session.
        handle: Handles records; returning means all is committed, raising means the same ones are tried
            again.
        positions: Stored next offsets, or None.
        past: More about them, or None.
        max_records: Most records of one call of `handle`.
        done: Told the next offset after each call that returned.
        grumble: Told each error.
        before: Task of the lane that had this partition before in this process, while it still runs.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        place: Place,
        handle: Handle,
        positions: Positions | None,
        past: Past | None,
        max_records: int,
        done: Callable[[Lane, int], None],
        grumble: Callable[[str, BaseException], None],
        clock: Clock,
        dice: Randomness,
        before: asyncio.Task[None] | None,
    ) -> None:
        self.partition = partition
        self.placed = False
        self.closed = False
        self.trouble: str | None = None
        self.since = clock.monotonic()
        self._place_of = place
        self._handle = handle
        self._positions = positions
        self._past = past
        self._max_records = max_records
        self._done = done
        self._grumble = grumble
        self._clock = clock
        self._dice = dice
        self._before = before
        self._earlier = None if before is None else _lanes.get(before)
        self._busy: float | None = None
        self._finishing = False
        self._next_offset = 0
        self._paused = False
        self._queue: deque[Record] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        place.pause(partition)
        self.task = asyncio.create_task(self._run(), name=f"milepost {partition[0]}/{partition[1]}")
        _lanes[self.task] = self

    @property
    def waits(self) -> bool:
        """Whether the lane that had this partition before still handles records."""
        return self._before is not None and not self._before.done()

    @property
    def busy_since(self) -> float | None:
        """Since when its call of `handle`, or that of the lane it waits for, has not got on; None without one."""
        if self._busy is None and self.waits and self._earlier is not None:
            return self._earlier.busy_since
        return self._busy

    @property
    def idle(self) -> bool:
        """Whether it waits for records that Kafka would have to send."""
        return self.placed and not self._queue and self.busy_since is None and not self._over

    def offer(self, records: Sequence[Record]) -> None:
        """Take records that were polled while this lane was placed."""
        if self._over:
            return
        self._queue.extend(records)
        self._bytes += sum(len(record.value or b"") for record in records)
        self._arrived.set()
        full = len(self._queue) >= 2 * self._max_records or self._bytes >= _BYTES
        if full and not self._paused:
            self._place_of.pause(self.partition)
            self._paused = True

    def close(self) -> None:
        """The partition is lost: forget its records; what runs may finish, its result is not reported."""
        self.closed = True
        self._forget()

    def finish(self) -> None:
        """End after the records that are being handled now."""
        self._finishing = True
        self._forget()

    @property
    def _over(self) -> bool:
        return self.closed or self._finishing

    def _forget(self) -> None:
        self._queue.clear()
        self._bytes = 0
        if self._busy is None:
            self.task.cancel()

    async def _run(self) -> None:
        if self._before is not None and not self._before.done():
            # Its transaction may still hold the rows of these records; let it end instead of queueing for its
            # locks.
            await asyncio.wait({self._before})
            self.since = self._clock.monotonic()
        await self._until_done(self._find_place)
        while not self._over:
            batch = await self._next()
            await self._until_done(partial(self._handled, batch))
            if not self.closed:
                self._done(self, batch[-1].offset + 1)

    async def _find_place(self) -> None:
        known = await self._known()
        start = find_start(known)
        if start.remark:
            logger.warning("%s/%s: %s", *self.partition, start.remark)
        if start.anew:
            await self._begin_anew(known.begin)
        await self._place_of.seek(self.partition, start.offset)
        self._next_offset = known.begin if start.offset is None else start.offset
        self.placed = True
        self._place_of.resume(self.partition)

    async def _known(self) -> Known:
        """Ask for everything that says where to read from; the topic's end after offsets, so that none is beyond it."""
        stored, place = None, self._place_of
        if self._positions is not None:
            stored = (await self._positions([self.partition])).get(self.partition)
        committed, since = await place.committed(self.partition), None
        begin, end = await place.bounds(self.partition)
        if doubtful(committed, end) and stored is not None and self._past is not None:
            moved_at = await self._past.moved_at(self.partition)
            since = (
                await place.sent_since(self.partition, moved_at - MARGIN) if moved_at is not None else None
            )
        return Known(committed, stored, begin, end, since)

    async def _begin_anew(self, offset: int) -> None:
        if self._past is not None:
            await self._past.begin_anew(self.partition, offset)

    async def _handled(self, batch: Sequence[Record]) -> None:
        self._busy = self._clock.monotonic()
        _handling.set(self)
        try:
            if batch[0].offset < self._next_offset:
                # aiokafka went back to the beginning by itself: its position was beyond the end of a topic made anew.
                logger.warning(
                    "%s/%s: went back to %s; the topic was made anew", *self.partition, batch[0].offset
                )
                await self._begin_anew(batch[0].offset)
            await self._handle(batch)
            expected, self._next_offset = self._next_offset, batch[-1].offset + 1
            if self._next_offset - expected > len(batch):
                await self._tell_removed(batch, expected)
        finally:
            self._busy = None

    async def _tell_removed(self, batch: Sequence[Record], expected: int) -> None:
        """Log what retention removed before it was read: then aiokafka goes on with the first record that is left.

        Other gaps are what compaction, markers of transactions and aborted records leave.
        """
        gap = _gap(batch, expected)
        with suppress(Exception):
            async with asyncio.timeout(_ASK):
                begin, _ = await self._place_of.bounds(self.partition)
            if gap and begin > gap[0]:
                many = min(begin, gap[1]) - gap[0]
                logger.warning("%s/%s: %s", *self.partition, removed(many, gap[0]))

    async def _next(self) -> list[Record]:
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._max_records))]
        self._bytes -= sum(len(record.value or b"") for record in batch)
        if self._paused and len(self._queue) < self._max_records and self._bytes < _BYTES // 2:
            self._paused = False
            self._place_of.resume(self.partition)
        return batch

    async def _until_done(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act until it works, with full-jitter backoff; a lane that is over by then is cancelled where it
        waits.

        Raises:
            StartAgain: The session is to be replaced by one that looks up its positions.

        Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        """
        bound = _FIRST_DELAY
        while True:
            try:
                await act()
            except StartAgain:
                raise
            except Exception as error:
                self.trouble = words_of(error)
                self._grumble(f"{self.partition[0]}/{self.partition[1]}", error)
            else:
                self.trouble = None
                return
            if self._over:
                raise asyncio.CancelledError
            await asyncio.sleep(bound * self._dice.uniform())
            bound = min(_LONGEST_DELAY, bound * 2)


def _gap(batch: Sequence[Record], expected: int) -> tuple[int, int] | None:
    """Return the first offsets that are missing in a batch, as (first, the one behind the last)."""
    for record in batch:
        if record.offset > expected:
            return expected, record.offset
        expected = record.offset + 1
    return None


_lanes: WeakKeyDictionary[asyncio.Task[None], Lane] = WeakKeyDictionary()
_handling: ContextVar[Lane | None] = ContextVar("milepost lane", default=None)
