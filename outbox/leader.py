"""The relay while it holds the lease: page after page, until it is asked to stop or loses the lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from ..schemas.ids import Clock, Randomness
from ..schemas.settings import Settings
from ..streams import measures
from ..streams.lifecycle import Stop
from ..streams.metrics import meters
from .catalog import Catalog
from .draining import Draining
from .encode import Encoded
from .feeder import Feeder, Seen
from .learning import Learning
from .lease import Lease
from .log import OutboxState, PositionLog, Reader, outbox_state
from .parking import Parking
from .patience import Backoff, Trouble
from .position import Page, Position, contiguous, may_go
from .producer import Producer, SendFailed
from .routing import Routing

logger = logging.getLogger("milepost")

T = TypeVar("T")

#: Seconds between looks at held topics, at letters somebody asked for, at all held keys, and at topics' settings.
_RECHECK, _ASKED, _KEYS, _TOPICS = 3.0, 1.0, 30.0, 30.0
#: Seconds between trims, writes of a position that only time has moved, and measurements.
_TRIM, _REST, _MEASURE = 30.0, 60.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a leading relay.

    Attributes:
        delivery: Longest wait for the acknowledgement of a page.
        statement: Longest wait for one statement, in seconds.
    """

    delivery: timedelta = timedelta(seconds=10)
    statement: float = 30.0


class Leader:
    """One term of leading.

    Args:
        reading: Connection for the tick, used by nobody else.
        writing: Connection for positions and letters, used by nobody else.
        trouble: Kafka's.
        measured: Told how the outbox stands every few seconds.
        topics: Topics that the application declares.
        seen: As the relay has it.
    """

    def __init__(
        self,
        settings: Settings,
        lease: Lease,
        outbox: str,
        reading: asyncpg.Connection[Any],
        writing: asyncpg.Connection[Any],
        *,
        stop: Stop,
        clock: Clock,
        randomness: Randomness,
        trouble: Trouble,
        limits: Limits,
        measured: Callable[[OutboxState], None],
        topics: Iterable[str] = (),
        seen: Seen | None = None,
    ) -> None:
        self._settings = settings
        self._lease = lease
        self._outbox = outbox
        self._reading = reading
        self._writing = writing
        self._stop = stop
        self._clock = clock
        self._trouble = trouble
        self._limits = limits
        self._measured = measured
        self._seen = seen
        self._log = PositionLog(writing, outbox, lease.epoch, timeout=limits.statement)
        self._parking = Parking(writing, self._log, outbox, lease.epoch, timeout=limits.statement)
        self._routing = Routing()
        self._catalog = Catalog(settings, self._routing, topics)
        self._learning = Learning(self._routing, self._catalog)
        self._draining = self._work_off()
        self._backoff = Backoff(randomness)
        self._position = Position()
        self._done: set[int] = set()
        self._dirty = False
        self._unstored, self._stored_at = 0, clock.monotonic()
        self._due: dict[str, float] = {}
        self._reserve: float | None = None

    def _work_off(self) -> Draining:
        return Draining(
            self._parking,
            self._routing,
            self._catalog,
            self._lease,
            self._stop,
            timestamp=self._timestamp,
            monotonic=self._clock.monotonic,
            allowed=self._allowed,
        )

    async def lead(self) -> None:
        """Relay until stopped.

        Raises:
            LeaseLost: The lease is over.
            StateError: MP411, this is a copy of the database that was relayed before.
        """
        self._position = await self._log.load()
        await self._log.write(self._position)
        self._catalog.remember(await self._parking.known_topics())
        try:
            while not self._stop.asked:
                try:
                    async with self._producing() as producer:
                        self._catalog.use(producer)
                        await self._session(producer)
                except SendFailed as failure:
                    await self._failed(failure)
        finally:
            await self._catalog.close()

    async def _session(self, producer: Producer) -> None:
        while not self._stop.asked:
            await self._parking.load(self._routing)
            await self._draining.work(producer)
            own = self._settings.pooler == "none"
            reader = Reader(self._reading, self._position, timeout=self._limits.statement, own_session=own)
            feeder = Feeder(
                reader,
                producer,
                self._routing,
                self._catalog,
                done=self._done,
                idle_poll=self._settings.relay_idle_poll.total_seconds(),
                clock=self._clock,
                timestamp=self._timestamp,
                seen=self._seen,
            )
            feeding = asyncio.create_task(feeder.run())
            try:
                await self._relay(producer, feeder)
            finally:
                feeding.cancel()
                with suppress(asyncio.CancelledError):
                    await feeding

    async def _relay(self, producer: Producer, feeder: Feeder) -> None:
        """Send pages until asked to stop, or until a held topic may be worked off."""
        while not self._stop.asked:
            self._lease.check()
            found = await feeder.next(0.05 if self._dirty else 0.25)
            if isinstance(found, Position):
                self._trouble.over()
                await self._rest(found)
            elif found is not None:
                await self._deliver(producer, *found)
            elif self._dirty:
                await self._write(self._position)
            if await self._housekeeping(producer):
                return
        if self._dirty:
            await self._write(self._position)

    async def _deliver(self, producer: Producer, page: Page, encoded: Encoded) -> None:
        if not may_go(page, self._unstored, self._clock.monotonic() - self._stored_at):
            await self._write(page.before, page.until)
        self._lease.check()
        try:
            await producer.send(encoded.batches, self._allowed)
        except SendFailed as failure:
            self._done |= failure.done
            self._position = contiguous(page, self._done)
            self._dirty = True
            raise
        if encoded.parked:
            await self._parking.park(encoded.parked, page.after)
        if self._routing.alone or self._routing.unsendable:
            for seq, *_ in page.rows:
                self._routing.settled(seq)
        if (found := meters()) is not None:
            found.add(measures.SENT, (), len(page.rows) - len(encoded.parked))
        self._position = page.after
        self._dirty = not encoded.parked
        self._unstored = self._unstored + len(page.rows) if self._dirty else 0
        self._done.clear()
        if encoded.batches:
            self._backoff.reset()
            self._trouble.over()

    async def _failed(self, failure: SendFailed) -> None:
        """Learn from a failure, then wait a little; the producer is gone already."""
        self._lease.check()
        learned, denied = self._learning.from_failure(failure)
        for topic in denied:
            self._draining.deny(topic)
            await self._parking.hold_topic(
                topic, "TOPIC_DENIED", f"this client may not write to topic {topic}"
            )
        if self._dirty:
            await self._write(self._position)
        if learned or denied:
            return
        self._trouble.meet(
            f"relay: Kafka at {self._settings.kafka}: {str(failure).rstrip('.')}. Nothing is lost; trying again."
        )
        await self._measure()
        await self._stop.wait(min(self._backoff.next(), max(0.0, self._lease.remaining())))

    async def _housekeeping(self, producer: Producer) -> bool:
        """Do what is due; return whether something that is held may go on."""
        if self._is_due("measure", _MEASURE):
            await self._measure()
        if self._is_due("trim", _TRIM):
            await self._log.trim()
        if self._is_due("topics", _TOPICS):
            self._catalog.begin_refresh()
        topics, gone = self._catalog.take_changes()
        if topics or gone:
            await self._parking.store_topics(topics, gone)
        if self._is_due("asked", _ASKED) and await self._draining.due_letters(
            every=self._is_due("keys", _KEYS)
        ):
            return True
        if not self._routing.held_topics or not self._is_due("recheck", _RECHECK):
            return False
        return bool(await self._draining.due_topics(producer))

    async def _rest(self, seen: Position) -> None:
        self._position = seen
        if self._is_due("rest", _REST) or self._dirty:
            await self._write(seen)

    async def _write(self, position: Position, until: str | None = None) -> None:
        await self._log.write(position, until)
        self._dirty, self._unstored, self._stored_at = False, 0, self._clock.monotonic()

    async def _measure(self) -> None:
        self._measured(await outbox_state(self._writing, self._outbox))

    def _timestamp(self) -> int:
        """Return the time of records in milliseconds, by the database's clock: this machine's may be wrong."""
        return int((self._clock.now() + self._lease.skew).timestamp() * 1000)

    def _is_due(self, what: str, every: float) -> bool:
        now = self._clock.monotonic()
        if now < self._due.setdefault(what, now + every):
            return False
        self._due[what] = now + every
        return True

    def _allowed(self) -> float:
        """Seconds in which the present page may still be sent: inside the lease, and inside the grace time."""
        self._lease.check()
        if not self._stop.asked:
            return self._lease.remaining()
        if self._reserve is None:
            self._reserve = min(4.0, self._stop.remaining() / 2)
        return min(self._lease.remaining(), self._stop.remaining() - self._reserve)

    @asynccontextmanager
    async def _producing(self) -> AsyncGenerator[Producer]:
        producer = Producer(self._settings, clock=self._clock, delivery_timeout=self._limits.delivery)
        try:
            if await self._unless_stopped(producer.open()):
                yield producer
            else:
                raise SendFailed("stopped while connecting")
        finally:
            await producer.close()

    async def _unless_stopped(self, waiting: Awaitable[object]) -> bool:
        work = asyncio.ensure_future(waiting)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, stopping})
        if work.cancelled():
            return False
        work.result()
        return True
