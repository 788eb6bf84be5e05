"""Which partitions a session has, their lanes, what may be committed, and whether there is progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

from ..schemas.envelope import Record
from ..schemas.ids import Clock, Randomness
from .kafka_poll import Partition
from .lifecycle import Health
from .reader_lane import Handle, Lane, Positions
from .reader_start import Past

if TYPE_CHECKING:
    from .kafka import GroupSession

_SILENCE = 15.0
_MEASURE_EVERY = 3.0
_COMMIT_AGAIN = 1.0
#: Shortest time in seconds between two commits of offsets: each is a request, and a record of Kafka's own topic. What
#: was handled since the last one is read again after a crash, as is what was handled and not committed at all.
_COMMIT_EVERY = 0.1


class SessionBroken(Exception):
    """The session is of no more use; the message says why."""


class Assignment:
    """The lanes of a session, over all its rebalances.

    Args:
        handle: See `Lane`.
        positions: See `Lane`.
        past: See `Lane`.
        max_records: See `Lane`.
        clock: Source of elapsed time.
        dice: Source of jitter.
        grumble: Told each error.
        running: Tasks of earlier lanes that may still run, by partition; shared between sessions.
        stalled_after: Seconds without progress, though records wait, after which the session counts as
            broken.
        slow_after: Seconds after which one call of `handle` is no sign of health any more.
    """

    session: GroupSession

    def __init__(
        self,
        *,
        handle: Handle,
        positions: Positions | None,
        past: Past | None,
        max_records: int,
        clock: Clock,
        dice: Randomness,
        grumble: Callable[[str, BaseException], None],
        running: MutableMapping[Partition, asyncio.Task[None]],
        stalled_after: float,
        slow_after: float,
    ) -> None:
        self._handle = handle
        self._positions = positions
        self._past = past
        self._max_records = max_records
        self._clock = clock
        self._dice = dice
        self._grumble = grumble
        self._running = running
        self._stalled_after = stalled_after
        self._slow_after = slow_after
        self._lanes: dict[Partition, Lane] = {}
        self._admitted: dict[Partition, Lane] = {}
        self._finishing = False
        self._broken: BaseException | None = None
        self._next: dict[Partition, tuple[Lane, int]] = {}
        self._to_commit = asyncio.Event()
        self._began = self._polled_at = self._reached_at = clock.monotonic()
        self._behind: dict[Partition, tuple[int, int]] = {}
        self._still: dict[Partition, tuple[Lane, int, float]] = {}

    # told by the session ---------------------------------------------------------------------------

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Open a lane for each partition; it pauses, seeks and resumes by itself."""
        try:
            if self._finishing:
                # A session that is leaving may be given partitions once more while it waits for the group.
                for found in partitions:
                    self.session.pause(found)
            else:
                self._open(partitions)
        except Exception as error:
            self.broken(error)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Close all lanes: the group's protocol takes everything away before it assigns anew."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def admit(self, partitions: Sequence[Partition]) -> set[Partition]:
        """Return those partitions of a poll that have sought their start in this assignment."""
        self._admitted = {
            found: lane
            for found in partitions
            if (lane := self._lanes.get(found)) is not None and lane.placed
        }
        return set(self._admitted)

    def receive(self, records: Sequence[Record]) -> None:
        """Give records to the lanes that were there when the poll returned."""
        for found, some in groupby(records, attrgetter("topic", "partition")):
            self._admitted[found].offer(list(some))

    def polled(self) -> None:
        """A poll returned."""
        self._polled_at = self._clock.monotonic()

    def broken(self, error: BaseException) -> None:
        """Remember the first error that ends this session."""
        if self._broken is None:
            self._broken = error

    # asked by the reader ---------------------------------------------------------------------------

    def check(self, polling: bool, helpers: Sequence[asyncio.Task[None]]) -> None:
        """Raise when this session must be replaced.

        Raises:
            SessionBroken: An error ended it, its tasks died, or it stands still although records wait.
        """
        if self._broken is not None:
            raise SessionBroken(f"{type(self._broken).__name__}: {self._broken}") from self._broken
        if not polling or any(task.done() for task in helpers):
            raise SessionBroken("a task of the consumer ended by itself")
        now = self._clock.monotonic()
        for (topic, number), (_, position, since) in self._still.items():
            if now - since > self._stalled_after:
                raise SessionBroken(
                    f"{topic}/{number} stands at {position} for {now - since:.0f} s although records wait"
                )

    def health(self) -> Health:
        """Return whether this session gets on."""
        now = self._clock.monotonic()
        for silent, what in (
            (now - self._polled_at, "no poll"),
            (now - self._reached_at, "Kafka does not answer"),
        ):
            if silent > _SILENCE:
                return Health(False, f"{what} for {silent:.0f} s")
        for (topic, number), lane in self._lanes.items():
            if lane.trouble is not None:
                return Health(False, f"{topic}/{number}: {lane.trouble}")
            if not lane.placed and not lane.waits and now - lane.since > _SILENCE:
                return Health(False, f"{topic}/{number}: waits for its start position")
            if lane.busy_since is not None and (busy := now - lane.busy_since) > self._slow_after:
                return Health(False, f"{topic}/{number}: its handlers have been running for {busy:.0f} s")
        if self._still and (slow := max(now - since for _, _, since in self._still.values())) > _SILENCE:
            return Health(False, f"no progress for {slow:.0f} s although records wait")
        return Health(True, f"{len(self._lanes)} partitions, lag {sum(self.lag().values())}")

    def lag(self) -> dict[str, int]:
        """Return by topic how many records are behind their ends."""
        found: dict[str, int] = {}
        for (topic, _), (position, end) in self._behind.items():
            found[topic] = found.get(topic, 0) + max(0, end - position)
        return found

    def finish(self) -> None:
        """Take no more records; lanes end after what they handle now."""
        self._finishing = True
        for lane in self._lanes.values():
            lane.finish()
            with suppress(Exception):
                self.session.pause(lane.partition)

    def close(self) -> None:
        """Give up all partitions, and take no more."""
        self._finishing = True
        self.revoked(())

    async def commit_forever(self) -> None:
        """Commit next offsets as lanes report them, all that are waiting in one request."""
        while True:
            await self._to_commit.wait()
            committed = await self.commit()
            await asyncio.sleep(_COMMIT_EVERY if committed else _COMMIT_AGAIN)

    async def commit(self) -> bool:
        """Commit what waits; refused after a rebalance it is dropped with its lane.

        Returns:
            False when it failed and is to be tried again.
        """
        self._to_commit.clear()
        due = {found: entry for found, entry in self._next.items() if not entry[0].closed}
        self._next = dict(due)
        if not due:
            return True
        try:
            async with asyncio.timeout(10.0):
                await self.session.commit({found: offset for found, (_, offset) in due.items()})
        except (KafkaError, TimeoutError):
            self._to_commit.set()
            return False
        for found, entry in due.items():
            if self._next.get(found) == entry:
                del self._next[found]
        return True

    async def measure_forever(self) -> None:
        """Compare positions with Kafka's ends again and again: for health, and to notice a dead consumer."""
        while True:
            lanes = {found: lane for found, lane in self._lanes.items() if lane.placed}
            with suppress(KafkaError, TimeoutError, AssertionError):
                async with asyncio.timeout(10.0):
                    self._behind = await self.session.behind(list(lanes))
                self._reached_at = self._clock.monotonic()
                self._note_progress(lanes)
            await asyncio.sleep(_MEASURE_EVERY)

    def _note_progress(self, lanes: dict[Partition, Lane]) -> None:
        """Keep, for each lane that stands still although records wait, since when."""
        still: dict[Partition, tuple[Lane, int, float]] = {}
        for found, (position, end) in self._behind.items():
            lane = lanes[found]
            if position < end and lane.idle and self._lanes.get(found) is lane:
                known = self._still.get(found)
                same = known is not None and known[:2] == (lane, position)
                still[found] = (
                    known if known is not None and same else (lane, position, self._clock.monotonic())
                )
        self._still = still

    def _open(self, partitions: Sequence[Partition]) -> None:
        self.revoked(())
        for found in partitions:
            lane = Lane(
                found,
                place=self.session,
                handle=self._handle,
                positions=self._positions,
                past=self._past,
                max_records=self._max_records,
                done=self._done,
                grumble=self._grumble,
                clock=self._clock,
                dice=self._dice,
                before=self._running.get(found),
            )
            self._lanes[found] = lane
            self._running[found] = lane.task
            lane.task.add_done_callback(partial(self._ended, lane))

    def _done(self, lane: Lane, offset: int) -> None:
        self._next[lane.partition] = (lane, offset)
        self._to_commit.set()

    def _ended(self, lane: Lane, task: asyncio.Task[None]) -> None:
        if self._running.get(lane.partition) is task:
            del self._running[lane.partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)
