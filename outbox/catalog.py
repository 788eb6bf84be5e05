"""What Kafka says about the topics that the relay sends to: whether they are compacted, and their largest batch.

Only topics that were met are looked at, not all of the cluster: what it costs does not grow with the cluster, and a
topic that nobody has met yet is nobody's mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Iterable
from contextlib import suppress

from ..schemas.settings import Settings
from .facts import TopicFacts
from .producer import Producer
from .routing import Everything, Routing


class Catalog:
    """Knows the topics that were met, and tells the routing.

    Args:
        settings: Which topics hold their keys.
        routing: Learns limits and compacted topics.
        topics: Met before, or declared by the application.
    """

    def __init__(self, settings: Settings, routing: Routing, topics: Iterable[str] = ()) -> None:
        self._producer: Producer | None = None
        self._routing = routing
        self._names = set(topics)
        self._met: set[str] = set()
        self._known: dict[str, TopicFacts] = {}
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        routing.holding = holding(settings)

    def remember(self, topics: Iterable[str]) -> None:
        """Look at these too from the next refresh on."""
        self._names.update(topics)

    def use(self, producer: Producer) -> None:
        """Ask through this producer from now on, and everything anew."""
        self._producer = producer
        self.begin_refresh()

    def doubt(self, topic: str) -> None:
        """Ask about a topic again before anything more is sent to it."""
        self._met.discard(topic)

    async def meet(self, topics: Collection[str]) -> None:
        """Learn about topics before something is sent to them for the first time."""
        new = set(topics) - self._met
        if new:
            self._met |= new
            self._names |= new
            await self.refresh(new)

    async def refresh(self, topics: Collection[str] | None = None) -> None:
        """Ask Kafka anew; what it does not answer stays as it was.

        Args:
            topics: These only; None for all that were met.
        """
        wanted = self._names if topics is None else set(topics)
        if not wanted or self._producer is None:
            return
        found = await self._producer.describe(sorted(wanted))
        for topic, facts in found.items():
            self._met.add(topic)
            if facts is None:
                self._forget(topic)
            elif self._known.get(topic) != facts:
                self._known[topic] = facts
                self._gone.discard(topic)
                self._changed.add(topic)
                self._tell(topic, facts)

    def begin_refresh(self) -> None:
        """Ask in the background, unless an answer is still awaited."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self.refresh())

    def take_changes(self) -> tuple[list[tuple[str, bool, int | None, str]], set[str]]:
        """Return what has changed since the last call: rows of milepost.topic, and topics that are no more."""
        changed, gone = self._changed, self._gone
        self._changed, self._gone = set(), set()
        rows = []
        for topic in sorted(changed):
            facts = self._known[topic]
            policy = "hold" if topic in self._routing.holding else "continue"
            rows.append((topic, facts.compacted, facts.max_bytes, policy))
        return rows, gone

    async def close(self) -> None:
        """End what is still being asked."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _tell(self, topic: str, facts: TopicFacts) -> None:
        routing = self._routing
        routing.caps.pop(topic, None)
        if facts.max_bytes is None:
            routing.limits.pop(topic, None)
        else:
            routing.limits[topic] = facts.max_bytes
        if facts.compacted:
            routing.compacted.add(topic)
        else:
            routing.compacted.discard(topic)

    def _forget(self, topic: str) -> None:
        self._names.discard(topic)
        self._met.discard(topic)
        self._changed.discard(topic)
        self._routing.compacted.discard(topic)
        self._routing.limits.pop(topic, None)
        self._routing.caps.pop(topic, None)
        if self._known.pop(topic, None) is not None:
            self._gone.add(topic)


def holding(settings: Settings) -> Container[str]:
    """Return the topics whose keys wait behind a row that is put aside, as MILEPOST_HOLD_TOPICS names them."""
    names = {name for part in settings.hold_topics.split(",") if (name := part.strip())}
    return Everything() if "*" in names else names
