"""The relay while it holds the lease: page after page, until it is asked to stop or loses the lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from ..schemas.ids import Clock, Randomness
from ..schemas.settings import Settings
from ..streams.lifecycle import Stop
from .encode import Encoded, Encoder, Parked, Routing
from .feeder import Feeder
from .lease import Lease
from .log import OutboxState, PositionLog, Reader, outbox_state
from .parking import Parking
from .patience import Backoff, Trouble
from .position import Page, Position, contiguous
from .producer import Producer, SendFailed, is_denied, is_too_large, topic_limit

logger = logging.getLogger("milepost")

T = TypeVar("T")

#: Seconds between looks at held topics, trims, and writes of a position that only time has moved.
_RECHECK, _TRIM, _REST, _MEASURE = 3.0, 30.0, 60.0, 5.0
_DENIED_AGAIN = 60.0
#: Pages of a held topic that are worked off before other rows get a turn.
_DRAIN_PAGES = 20


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
        self._log = PositionLog(writing, outbox, lease.epoch, timeout=limits.statement)
        self._parking = Parking(writing, self._log, outbox, lease.epoch, timeout=limits.statement)
        self._routing = Routing()
        self._backoff = Backoff(randomness)
        self._position = Position()
        self._done: set[int] = set()
        self._dirty = False
        self._due: dict[str, float] = {}
        self._reserve: float | None = None
        self._denied: dict[str, float] = {}

    async def lead(self) -> None:
        """Relay until stopped.

        Raises:
            LeaseLost: The lease is over.
            StateError: MP411, this is a copy of the database that was relayed before.
        """
        self._position = await self._log.load()
        await self._log.write(self._position)
        while not self._stop.asked:
            try:
                async with self._producing() as producer:
                    await self._session(producer)
            except SendFailed as failure:
                await self._failed(failure)

    async def _session(self, producer: Producer) -> None:
        while not self._stop.asked:
            await self._parking.load(self._routing)
            await self._drain(producer)
            reader = Reader(self._reading, self._position, timeout=self._limits.statement)
            feeder = Feeder(
                reader,
                producer,
                self._routing,
                done=self._done,
                idle_poll=self._settings.relay_idle_poll.total_seconds(),
                clock=self._clock,
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
        await self._write(page.before)
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
        self._position = page.after
        self._dirty = not encoded.parked
        self._done.clear()
        if encoded.batches:
            self._succeeded()

    def _succeeded(self) -> None:
        self._backoff.reset()
        self._trouble.over()

    async def _failed(self, failure: SendFailed) -> None:
        """Learn from a failure, then wait a little; the producer is gone already."""
        self._lease.check()
        refused = [entry for entry in failure.refused if is_too_large(entry[2])]
        denied = {where[0] for where, _, error in failure.refused if is_denied(error)}
        for (topic, _), batch, _ in refused:
            await self._learn(topic, batch.seqs, batch.builder.size())
        for topic in denied:
            self._denied[topic] = self._clock.monotonic() + _DENIED_AGAIN
            await self._parking.hold_topic(
                topic, "TOPIC_DENIED", f"this client may not write to topic {topic}"
            )
        if self._dirty:
            await self._write(self._position)
        if refused or denied:
            return
        self._trouble.meet(
            f"relay: Kafka at {self._settings.kafka}: {failure}. Nothing is lost; trying again."
        )
        await self._measure()
        await self._stop.wait(min(self._backoff.next(), max(0.0, self._lease.remaining())))

    async def _learn(self, topic: str, seqs: list[int], size: int) -> None:
        limit = await topic_limit(self._settings, topic)
        if limit is not None and limit < self._routing.limits.get(topic, size):
            self._routing.limits[topic] = limit
        elif len(seqs) > 1:
            self._routing.limits[topic] = max(1, size // 2)
        else:
            known = "more than the broker takes" if limit is None else f"and {topic} takes {limit}"
            self._routing.unsendable[seqs[0]] = f"the record is {size} bytes, {known}"

    async def _housekeeping(self, producer: Producer) -> bool:
        """Do what is due; return whether a held topic may be worked off."""
        if self._is_due("measure", _MEASURE):
            await self._measure()
        if self._is_due("trim", _TRIM):
            await self._log.trim()
        if not self._routing.held_topics or not self._is_due("recheck", _RECHECK):
            return False
        return bool(await self._ready(producer))

    async def _ready(self, producer: Producer) -> list[str]:
        now = self._clock.monotonic()
        held = [topic for topic in self._routing.held_topics if self._denied.get(topic, 0.0) <= now]
        missing = await producer.look_up(held) if held else {}
        return sorted(topic for topic in held if topic not in missing)

    async def _drain(self, producer: Producer) -> None:
        for topic in await self._ready(producer):
            encoder = Encoder(producer.new_batch, producer.partitions, self._routing, draining=topic)
            for _ in range(_DRAIN_PAGES):
                rows = await self._parking.letters(topic)
                if self._stop.asked or (not rows and await self._parking.release(topic)):
                    break
                self._lease.check()
                encoded = await encoder.encode(rows, int(self._clock.now().timestamp() * 1000))
                await producer.send(encoded.batches, self._allowed)
                await self._settle(topic, encoded)
            await self._parking.load(self._routing)

    async def _settle(self, topic: str, encoded: Encoded) -> None:
        sent = [seq for chain in encoded.batches.values() for batch in chain for seq in batch.seqs]
        parked: list[Parked] = encoded.parked
        await self._parking.settle(topic, sent, parked)
        self._succeeded()

    async def _rest(self, seen: Position) -> None:
        self._position = seen
        if self._is_due("rest", _REST) or self._dirty:
            await self._write(seen)

    async def _write(self, position: Position) -> None:
        await self._log.write(position)
        self._dirty = False

    async def _measure(self) -> None:
        self._measured(await outbox_state(self._writing, self._outbox))

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
