"""A service whose consumer writes effects and publishes, for tests that replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from milepost import Event, Milepost, Settings, Transaction
from milepost.consumers.publishing import publish_in
from milepost.inbox.consumer import Consumer
from milepost.streams import slice as topic_slice
from milepost.streams.database import Database

from tests.support.inbox import EFFECT, EFFECTS, Effects, Paid, Sent, committed, reader_of, running, send
from tests.support.waiting import until


class Booked(Event, type="test.booked", version=1, topic="unused", key="order"):
    """What the handler publishes for each order."""

    order: str


@dataclass
class Shop:
    """A service with one consumer on a topic of its own.

    Attributes:
        runs: Orders that the handler was called with.
    """

    kafka: str
    topic: str
    effects: Effects
    database_url: str
    keep: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings: dict[str, Any] = {"database_url": self.database_url, "kafka": self.kafka, **self.keep}
        self.service = Milepost("shop", settings=Settings(**settings))
        self.consumer = declared(self.service, self.topic, self.handle, **self.options)

    async def handle(self, event: Any, tx: Transaction) -> None:
        """Write the effect, publish, and note the run; an order "bad…" fails."""
        self.runs.append(event.order)
        await tx.connection.execute(EFFECT, tx.envelope.id, event.order)
        await tx.publish(Booked(order=event.order))
        if event.order.startswith("bad"):
            raise ValueError("always")

    async def consume(self, records: Sequence[Sent], *, until_effects: int) -> None:
        """Send records and have the live group consume until there are so many effects, offsets committed."""
        await send(self.kafka, self.topic, records)
        async with topic_slice.opened(self.kafka, self.topic) as source:
            ends = {partition: end for partition, (_, end) in (await source.bounds()).items()}

        async def caught_up() -> bool:
            return await self.caught_up(ends)

        async with self.opened() as database:
            async with running(reader_of(self.consumer, database, self.kafka, publisher=publish_in)):
                await until(
                    lambda: self.effects.value("SELECT count(*) >= $1 FROM effect", until_effects), within=30
                )
                await until(caught_up, within=30, what="the group's offsets")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """Give the service's own database."""
        database = Database(self.service.settings)
        await database.open()
        try:
            yield database
        finally:
            await database.close()

    async def caught_up(self, ends: Mapping[int, int]) -> bool:
        """Whether stored positions and Kafka's offsets have come to the topic's ends."""
        rows = await self.effects.rows(
            "SELECT partition, next_offset FROM milepost.consumer_position WHERE consumer = $1",
            self.consumer.name,
        )
        stored = {row["partition"]: row["next_offset"] for row in rows}
        wanted = {partition: end for partition, end in ends.items() if end}
        return stored == wanted and await committed(self.kafka, self.consumer.name) == wanted

    async def lose(self, *orders: str) -> None:
        """Take effects and inbox rows away, as a table restored by hand would."""
        await self.effects.value(
            "WITH gone AS (DELETE FROM effect WHERE text = ANY ($1) RETURNING event)"
            " DELETE FROM milepost.inbox USING gone WHERE event_id = gone.event",
            list(orders),
        )

    async def twice(self) -> dict[str, int]:
        """Return the orders with more than one effect."""
        return {order: n for order, n in Counter(await self.effects.orders()).items() if n > 1}

    async def published(self) -> int:
        """Return the number of rows in the outbox."""
        return int(await self.effects.value("SELECT count(*) FROM milepost.outbox"))

    async def close(self) -> None:
        """Close what replays have opened."""
        await self.service.close()


def declared(service: Milepost, topic: str, handler: Any, **options: Any) -> Consumer:
    """Return a new consumer of a service, named and fed by a topic."""

    class Here(Paid, type="test.paid", version=1, topic=topic, key="order"):
        pass

    consumer = service.consumer(topic, **options)
    consumer.on(Here)(handler)
    return consumer


@asynccontextmanager
async def shop(database_url: str, kafka: str, topic: str, **more: Any) -> AsyncIterator[Shop]:
    """Give a shop on a fresh database."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        await pool.execute(EFFECTS)
        await pool.execute("INSERT INTO milepost.topic (name) VALUES ('unused') ON CONFLICT DO NOTHING")
        found = Shop(kafka, topic, Effects(pool), database_url, **more)
        try:
            yield found
        finally:
            await found.close()
