"""Reads and encodes the next page while the present one is being sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TypeAlias

from ..schemas.events import is_topic
from ..schemas.ids import Clock
from .catalog import Catalog
from .encode import Encoded, Encoder
from .gathering import Gathering
from .log import Reader
from .pace import Pace
from .position import Page, Position, Row
from .producer import Producer
from .routing import Routing

_FASTEST, _FAST = 0.001, 0.005
_BUSY_FOR = 10.0

#: Told rows that have been seen committed, returns whether it has taken all of them, so that nobody waits for their
#: records; at once, and raises nothing.
Seen: TypeAlias = Callable[[Sequence[Row]], bool]
Fed: TypeAlias = tuple[Page, Encoded]
_Found: TypeAlias = Fed | Position | Exception


class _Line:
    """What was found, in the order in which it was found, from one giver to one taker.

    A position says that all before it is done, so that it must never reach the taker ahead of a page: pages and
    positions stand in one line. A page waits until the one ahead of it is taken. A position waits for nobody and
    takes the place of one at the end of the line, so that looking goes on while a page is being sent.
    """

    def __init__(self) -> None:
        self._found: deque[_Found] = deque()
        self._came = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put_page(self, page: Fed) -> None:
        """Add a page as soon as the one ahead of it is taken."""
        await self._room.wait()
        self._room.clear()
        self._append(page)

    def put_position(self, position: Position) -> None:
        """Add a position; of several in a row the last is left."""
        if self._found and isinstance(self._found[-1], Position):
            self._found.pop()
        self._append(position)

    def put_failure(self, error: Exception) -> None:
        """Add what ended the giver."""
        self._append(error)

    async def take(self) -> _Found:
        """Take the first; when this is cancelled, nothing has been taken."""
        while not self._found:
            self._came.clear()
            await self._came.wait()
        first = self._found.popleft()
        if not isinstance(first, Position):
            self._room.set()
        return first

    def _append(self, found: _Found) -> None:
        self._found.append(found)
        self._came.set()


class Feeder:
    """One page ahead of the sender, never more.

    Args:
        done: Numbers of rows of the first pages that were acknowledged before.
        idle_poll: Longest pause in seconds when no row has come for ten seconds.
        timestamp: Returns the record timestamp in milliseconds, UTC.
        seen: Told the rows of each page before it is sent.
    """

    def __init__(
        self,
        reader: Reader,
        producer: Producer,
        routing: Routing,
        catalog: Catalog,
        *,
        done: AbstractSet[int],
        idle_poll: float,
        clock: Clock,
        timestamp: Callable[[], int],
        seen: Seen | None = None,
    ) -> None:
        self._reader = reader
        self._producer = producer
        self._routing = routing
        self._encoder = Encoder(producer.partitions, routing)
        self._done = done
        self._idle_poll = idle_poll
        self._catalog = catalog
        self._clock = clock
        self._timestamp = timestamp
        self._seen = seen
        self._line = _Line()
        self._row_at = clock.monotonic()
        self._pace = Pace(self._row_at)
        self._gathering = Gathering()

    async def run(self) -> None:
        """Feed until cancelled; a failure is handed to who takes the pages."""
        pause = _FASTEST
        reading = asyncio.create_task(self._reader.read())
        try:
            while True:
                found = await reading
                now = self._clock.monotonic()
                if isinstance(found, Page):
                    urgent = self._seen is None or not self._seen(found.rows)
                    gap = self._pace.gap(len(found.rows), found.behind, now)
                    # The database works on the next page while this one is encoded.
                    reading = asyncio.create_task(self._look(gap))
                    for page in self._gathering.add(found, now, urgent=urgent):
                        await self._line.put_page((page, await self._encode(page)))
                    self._row_at, pause = self._clock.monotonic(), _FASTEST
                    continue
                if (late := self._gathering.due(now)) is not None:
                    await self._line.put_page((late, await self._encode(late)))
                if self._gathering.empty:
                    self._line.put_position(found)
                await asyncio.sleep(pause)
                busy = self._clock.monotonic() - self._row_at < _BUSY_FOR
                pause = min(pause * 1.5, _FAST) if busy else min(pause * 2, self._idle_poll)
                reading = asyncio.create_task(self._reader.read())
        except Exception as error:
            self._line.put_failure(error)
        finally:
            reading.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await reading
            await self._reader.end()

    async def _look(self, gap: float) -> Page | Position:
        if gap:
            await asyncio.sleep(gap)
        return await self._reader.read()

    async def next(self, within: float) -> Fed | Position | None:
        """Return the next page as soon as it comes, or what is known when none came within so many seconds.

        Returns:
            A page; else the position of the last look at which there was nothing to send, which is behind all pages
            that were returned and before all that will be; None when even that is not known.

        Raises:
            Exception: What ended the feeding.
        """
        found: _Found | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                found = await self._line.take()
                while isinstance(found, Position):
                    found = await self._line.take()
        if isinstance(found, Exception):
            raise found
        return found

    async def _encode(self, page: Page) -> Encoded:
        topics = {row[1] for row in page.rows} - self._routing.held_topics.keys()
        # Kafka's protocol has no room for some of them, and the client no error.
        self._routing.nameless = {topic for topic in topics if not is_topic(topic)}
        topics -= self._routing.nameless
        self._routing.held_topics.update(await self._producer.look_up(topics))
        await self._catalog.meet(topics - self._routing.held_topics.keys())
        return await self._encoder.encode(page.rows, self._timestamp(), self._done)
