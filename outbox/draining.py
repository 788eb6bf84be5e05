"""Working off what is held: topics that can be written again, and keys of which somebody asked for the first letter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..streams.lifecycle import Stop
from .catalog import Catalog
from .encode import Encoded, Encoder
from .lease import Lease
from .parking import Parking
from .position import Row
from .producer import Producer, SendFailed
from .routing import Everything, Parked, Routing

#: Stores what became of letters: numbers of those sent, and those put aside again.
Settle: TypeAlias = Callable[[Collection[int], Sequence[Parked]], Awaitable[None]]

#: Pages that are worked off before other rows get a turn.
_PAGES = 20
#: A denied topic is tried again after so many seconds, then after twice as many, up to the last.
_DENIED_FIRST, _DENIED_LAST = 2.0, 60.0


class Draining:
    """Sends letters in their order and lets go what they held.

    Args:
        timestamp: Returns the record timestamp in milliseconds, UTC.
        monotonic: Returns elapsed seconds.
        allowed: As `Producer.send` takes it.
    """

    def __init__(
        self,
        parking: Parking,
        routing: Routing,
        catalog: Catalog,
        lease: Lease,
        stop: Stop,
        *,
        timestamp: Callable[[], int],
        monotonic: Callable[[], float],
        allowed: Callable[[], float],
    ) -> None:
        self._parking = parking
        self._routing = routing
        self._catalog = catalog
        self._lease = lease
        self._stop = stop
        self._timestamp = timestamp
        self._monotonic = monotonic
        self._allowed = allowed
        self._denied: dict[str, tuple[float, float]] = {}

    def deny(self, topic: str) -> None:
        """Note that a topic was denied, so that it is not tried again at once."""
        _, before = self._denied.get(topic, (0.0, _DENIED_FIRST / 2))
        pause = min(before * 2, _DENIED_LAST)
        self._denied[topic] = (self._monotonic() + pause, pause)

    async def due_topics(self, producer: Producer) -> list[str]:
        """Return held topics that can be tried now, or that are missing still and hold nothing any more."""
        if not self._routing.held_topics:
            return []
        asked, now = await self._parking.asked_topics(), self._monotonic()
        held = [
            topic
            for topic in self._routing.held_topics
            if topic in asked or self._denied.get(topic, (0.0, 0.0))[0] <= now
        ]
        missing = await producer.look_up(held) if held else {}
        forsaken = await self._parking.forsaken_topics(missing)
        return sorted(topic for topic in held if topic not in missing or topic in forsaken)

    async def due_letters(self, *, every: bool) -> bool:
        """Return whether letters of keys can be sent, or their holds let go.

        Args:
            every: Look at all held keys, not only at those of which somebody asked for a letter.
        """
        held = self._routing.held_topics.keys()
        return bool(
            await self._parking.due_keys(held, every=every) or await self._parking.loose_letters(held)
        )

    async def work(self, producer: Producer) -> None:
        """Send what can go on.

        Raises:
            SendFailed: Something was refused or not acknowledged; what was acknowledged is settled.
            LeaseLost: Somebody else leads.
        """
        for topic in await self.due_topics(producer):
            await self._topic(producer, topic)
            await self._parking.load(self._routing)
        for _ in range(_PAGES):
            if self._stop.asked or not await self._keys(producer):
                break
            await self._parking.load(self._routing)
        for _ in range(_PAGES):
            if self._stop.asked or not await self._loose(producer):
                break

    async def _topic(self, producer: Producer, topic: str) -> None:
        for page in range(_PAGES):
            rows = await self._parking.topic_letters(topic)
            if self._stop.asked or (not rows and await self._parking.release_topic(topic)):
                self._denied.pop(topic, None)
                return
            if page == 0:
                await self._catalog.refresh([topic])
            encoded = await self._encode(producer, rows, self._routing, draining=topic)
            await self._send(producer, encoded, self._parking.settle_topic)

    async def _keys(self, producer: Producer) -> bool:
        keys = await self._parking.due_keys(self._routing.held_topics.keys(), every=True)
        if not keys:
            return False
        rows = await self._parking.key_letters(keys)

        async def settle(sent: Collection[int], parked: Sequence[Parked]) -> None:
            await self._parking.settle_keys(keys, sent, parked)

        # A key that is held stays held by the first row that is refused again, whatever the settings say now.
        routing = replace(self._routing, held_keys=self._routing.held_keys - set(keys), holding=Everything())
        await self._known(producer, rows)
        await self._send(producer, await self._encode(producer, rows, routing), settle)
        return True

    async def _loose(self, producer: Producer) -> bool:
        rows = await self._parking.loose_letters(self._routing.held_topics.keys())
        if not rows:
            return False

        async def settle(sent: Collection[int], parked: Sequence[Parked]) -> None:
            await self._parking.settle_keys([], sent, parked)

        await self._known(producer, rows)
        routing = replace(self._routing, holding=frozenset())
        await self._send(producer, await self._encode(producer, rows, routing), settle)
        return True

    async def _known(self, producer: Producer, rows: Sequence[Row]) -> None:
        """Look at the topics anew: a raised limit may be the reason why somebody asked."""
        topics = {row[1] for row in rows}
        for topic, (code, message) in (await producer.look_up(topics)).items():
            self._routing.held_topics[topic] = (code, message)
            await self._parking.hold_topic(topic, code, message)
            raise SendFailed(message)
        await self._catalog.refresh(topics)

    async def _encode(
        self, producer: Producer, rows: Sequence[Row], routing: Routing, *, draining: str | None = None
    ) -> Encoded:
        encoder = Encoder(producer.partitions, routing, draining=draining)
        return await encoder.encode(rows, self._timestamp())

    async def _send(self, producer: Producer, encoded: Encoded, settle: Settle) -> None:
        self._lease.check()
        try:
            await producer.send(encoded.batches, self._allowed)
        except SendFailed as failure:
            if failure.done:
                await settle(failure.done, [])
            raise
        sent = [seq for chain in encoded.batches.values() for batch in chain for seq in batch.seqs]
        await settle(sent, encoded.parked)
        for seq in [*sent, *(letter.seq for letter in encoded.parked)]:
            self._routing.settled(seq)
