"""Reading topics as a member of a consumer group, so that the poll loop never works.

The subscriber hands records to one bounded task per partition and pauses a partition that is full; the task
has them handled and then its own next offset is committed, nobody else's. So no handler, however slow, trips
max.poll.interval, and a slow partition holds back no other. A session that breaks or stands still although
records wait is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ..schemas.ids import Clock, Randomness, SystemClock, SystemRandomness
from .kafka_client import KafkaAt
from .kafka_poll import Partition
from .lifecycle import Health, Stop
from .membership import GroupOptions
from .reader_assignment import Assignment
from .reader_lane import Handle, Positions
from .reader_start import Past
from .words import words_of

if TYPE_CHECKING:
    from .kafka import GroupSession

logger = logging.getLogger("milepost.reader")

_TICK = 0.25
_LONGEST_PAUSE = 10.0
_CLOSE = 1.5
_GRUMBLE_EVERY = 60.0


class GroupReader:
    """A role that reads topics as one member of a group.

    Args:
        name: What `--roles` and health call it.
        kafka: Where Kafka is: settings, or bootstrap servers (host:port, comma-separated) in plain text.
        group: Consumer group.
        topics: Topics to read; they must exist.
        handle: Called with records of one partition in order, one call at a time per partition. Returning
            means that all of them are done for good; raising means that the same ones are tried again later,
            so it raises only when something it needs is away.
        positions: Returns the stored next offsets of partitions, or nothing for those it does not know; None
            when none are stored.
        past: More about stored positions; without it a topic that was made anew leaves them as they are.
        max_records: Most records of one call.
        clock: Source of elapsed time.
        dice: Source of jitter.
        options: Timing of the group.
        stalled_after: Seconds without progress, though records wait, after which the session is replaced.
        slow_after: Seconds for which one call of `handle` may run before health turns red.
        remarks: Returns what health is to say besides, or "".
    """

    def __init__(
        self,
        *,
        name: str,
        kafka: KafkaAt,
        group: str,
        topics: Sequence[str],
        handle: Handle,
        positions: Positions | None = None,
        past: Past | None = None,
        max_records: int = 500,
        clock: Clock | None = None,
        dice: Randomness | None = None,
        options: GroupOptions = GroupOptions(),
        stalled_after: float = 30.0,
        slow_after: float = 300.0,
        remarks: Callable[[], str] = str,
    ) -> None:
        from .kafka import GroupSession  # noqa: PLC0415 - FastStream, 8 MB, which only readers need

        self._new_session = GroupSession
        self._name = name
        self._kafka = kafka
        self._group = group
        self._topics = list(topics)
        self._handle = handle
        self._positions = positions
        self._past = past
        self._max_records = max_records
        self._clock = clock or SystemClock()
        self._dice = dice or SystemRandomness()
        self._options = options
        self._stalled_after = stalled_after
        self._now: Assignment | None = None
        self._running: dict[Partition, asyncio.Task[None]] = {}
        self._trouble: str | None = "not started"
        self._careful = False
        self._grumbled_at: float | None = None
        self._slow_after = slow_after
        self._remarks = remarks
        self._well_at = self._clock.monotonic()

    @property
    def name(self) -> str:
        """What `--roles` calls it."""
        return self._name

    def health(self) -> Health:
        """Return the present state: progress against Kafka's end offsets, not that an object exists."""
        if self._trouble is not None:
            return Health(False, self._trouble)
        if self._now is None:
            return Health(False, "connecting")
        found, more = self._now.health(), self._remarks()
        return replace(found, detail=f"{found.detail}, {more}") if more else found

    def lag(self) -> Mapping[str, int]:
        """Return by topic how many records its partitions are behind, as measured last; nothing while it has none."""
        return {} if self._now is None else self._now.lag()

    def stuck_for(self) -> float:
        """Return for how many seconds it has not been well, 0 while it is.

        Not well is: no poll or no answer of Kafka for 15 s, no progress for 15 s although records wait, handlers that
        have been running for longer than `slow_after`, a start position or the database that cannot be had.
        """
        return 0.0 if self.health().ok else self._clock.monotonic() - self._well_at

    async def run(self, stop: Stop) -> None:
        """Read until a stop is asked for; then let handlers finish in the grace time, else cancel them."""
        self._trouble, self._well_at = None, self._clock.monotonic()
        bound = 0.5
        while not stop.asked:
            began = self._clock.monotonic()
            try:
                await self._session(stop)
            except Exception as error:
                self._careful = isinstance(error.__cause__, UnicodeDecodeError)
                self._trouble = f"group {self._group}: {words_of(error)}"
                self._grumble(f"group {self._group}", error)
            bound = 0.5 if self._clock.monotonic() - began > 60 else min(_LONGEST_PAUSE, bound * 2)
            await stop.wait(bound * self._dice.uniform())
        await self._drain(stop)
        self._trouble = "stopped"

    async def _session(self, stop: Stop) -> None:
        """Live one membership of the group.

        Raises:
            Exception: What broke it.
        """
        assignment = self._assignment()
        session = assignment.session
        session.own()
        helpers: list[asyncio.Task[None]] = []
        try:
            if not await self._started(session, stop):
                return
            self._now, self._trouble = assignment, None
            helpers = [
                asyncio.create_task(assignment.commit_forever(), name="milepost commits"),
                asyncio.create_task(assignment.measure_forever(), name="milepost lag"),
            ]
            while not await stop.wait(_TICK):
                assignment.check(session.polling, helpers)
                if self.health().ok:
                    self._well_at = self._clock.monotonic()
            assignment.finish()
            await self._drain(stop)
            with suppress(Exception):
                async with asyncio.timeout(max(0.5, min(_CLOSE, stop.remaining()))):
                    await assignment.commit()
        finally:
            assignment.close()
            self._now = None
            await _end(helpers)
            await session.close(max(0.5, min(_CLOSE, stop.remaining())))

    def _assignment(self) -> Assignment:
        assignment = Assignment(
            handle=self._handle,
            positions=self._positions,
            past=self._past,
            max_records=self._max_records,
            clock=self._clock,
            dice=self._dice,
            grumble=self._grumble,
            running=self._running,
            stalled_after=self._stalled_after,
            slow_after=self._slow_after,
        )
        assignment.session = self._new_session(
            self._kafka,
            client=f"milepost-{self._name}",
            group=self._group,
            topics=self._topics,
            max_records=4 * self._max_records,
            polls=assignment,
            rebalances=assignment,
            options=self._options,
            careful=self._careful,
        )
        return assignment

    async def _started(self, session: GroupSession, stop: Stop) -> bool:
        starting = asyncio.create_task(session.start(), name="milepost join")
        stopping = asyncio.create_task(stop.wait(), name="milepost stop")
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                return True
            return False
        finally:
            await _end([starting, stopping])

    async def _drain(self, stop: Stop) -> None:
        """Let handlers finish, those of lost partitions included, and cancel them at the end of the grace time."""
        # The last second of it is for rolling back, committing offsets and leaving the group.
        while (busy := self._busy()) and stop.remaining() > 1.0:
            await asyncio.wait(busy, timeout=0.05)
        await _end(self._busy())

    def _busy(self) -> list[asyncio.Task[None]]:
        return [task for task in self._running.values() if not task.done()]

    def _grumble(self, place: str, error: BaseException) -> None:
        """Log an error, one line a minute for this reader."""
        now = self._clock.monotonic()
        if self._grumbled_at is not None and now - self._grumbled_at < _GRUMBLE_EVERY:
            return
        self._grumbled_at = now
        logger.warning("%s: %s: %s; trying again", self._name, place, words_of(error))


async def _end(tasks: Sequence[asyncio.Task[None] | asyncio.Task[bool]]) -> None:
    for task in tasks:
        if not task.done():
            task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=2.0)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
