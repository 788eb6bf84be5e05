"""Reads and encodes the next page while the present one is being sent."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from contextlib import suppress

from ..schemas.ids import Clock
from .encode import Encoded, Encoder, Routing
from .log import Reader
from .position import Page, Position
from .producer import Producer

_FASTEST, _FAST = 0.001, 0.005
_BUSY_FOR = 10.0


class Feeder:
    """One page ahead of the sender, never more.

    Args:
        done: Numbers of rows of the first pages that were acknowledged before.
        idle_poll: Longest pause in seconds when no row has come for ten seconds.

    Attributes:
        seen: Position of the last look at which there was nothing to send; None while a page is on its way.
    """

    def __init__(
        self,
        reader: Reader,
        producer: Producer,
        routing: Routing,
        *,
        done: AbstractSet[int],
        idle_poll: float,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._producer = producer
        self._routing = routing
        self._encoder = Encoder(producer.new_batch, producer.partitions, routing)
        self._done = done
        self._idle_poll = idle_poll
        self._clock = clock
        self._pages: asyncio.Queue[tuple[Page, Encoded] | Exception] = asyncio.Queue(1)
        self._row_at = clock.monotonic()
        self.seen: Position | None = None

    async def run(self) -> None:
        """Feed until cancelled; a failure is handed to who takes the pages."""
        pause = _FASTEST
        reading = asyncio.create_task(self._reader.read())
        try:
            while True:
                found = await reading
                if isinstance(found, Page):
                    self.seen = None
                    # The database works on the next page while this one is encoded.
                    reading = asyncio.create_task(self._reader.read())
                    await self._pages.put((found, await self._encode(found)))
                    self._row_at, pause = self._clock.monotonic(), _FASTEST
                    continue
                self.seen = found
                await asyncio.sleep(pause)
                busy = self._clock.monotonic() - self._row_at < _BUSY_FOR
                pause = min(pause * 1.5, _FAST) if busy else min(pause * 2, self._idle_poll)
                reading = asyncio.create_task(self._reader.read())
        except Exception as error:
            await self._pages.put(error)
        finally:
            reading.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await reading
            await self._reader.end()

    async def next(self, within: float) -> tuple[Page, Encoded] | None:
        """Return the next page, or None when none came within so many seconds.

        Raises:
            Exception: What ended the feeding.
        """
        try:
            async with asyncio.timeout(within):
                found = await self._pages.get()
        except TimeoutError:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    async def _encode(self, page: Page) -> Encoded:
        topics = {row[1] for row in page.rows} - self._routing.held_topics.keys()
        self._routing.held_topics.update(await self._producer.look_up(topics))
        timestamp = int(self._clock.now().timestamp() * 1000)
        return await self._encoder.encode(page.rows, timestamp, self._done)
