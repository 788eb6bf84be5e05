"""How far consumers are behind, as Kafka says: looked at beside the pages, so that none of them waits for Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ...schemas.errors import MilepostError
from ...streams.ends import end_offsets
from ...streams.kafka_client import KafkaAt

logger = logging.getLogger("milepost")

#: Seconds for which an answer counts, and after which Kafka is asked again when it did not answer.
FRESH, AGAIN = 5.0, 30.0

#: Next offsets of consumers, by consumer, topic and partition.
Positions = Mapping[tuple[str, str, int], int]


@dataclass
class Ends:
    """Where the topics end that consumers read, as last seen.

    Args:
        kafka: Where Kafka is.

    Attributes:
        trouble: Why there is no answer; "" where there is one, or none yet.
    """

    kafka: KafkaAt
    trouble: str = ""
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _next: float = 0.0
    _task: asyncio.Task[None] | None = None

    def lag(self, positions: Positions) -> dict[str, int] | None:
        """Return how many records each consumer is behind, from what is known now; None while nothing is.

        What is old is looked at anew meanwhile; the page that is live shows it at its next look.
        """
        topics = {topic for _, topic, _ in positions}
        now = asyncio.get_running_loop().time()
        if topics and now >= self._next and (self._task is None or self._task.done()):
            self._next = now + FRESH
            self._task = asyncio.create_task(self._look(topics), name="ends of topics")
        if not self._ends:
            return None
        found: dict[str, int] = {}
        for (consumer, topic, partition), position in positions.items():
            behind = max(0, self._ends.get((topic, partition), position) - position)
            found[consumer] = found.get(consumer, 0) + behind
        return found

    async def _look(self, topics: set[str]) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._ends = await end_offsets(self.kafka, topics)
            self.trouble = ""
            self._next = loop.time() + FRESH
        except (MilepostError, OSError) as error:
            if not self.trouble:
                logger.warning("console: %s", error)
            self._ends, self.trouble = {}, "Kafka does not answer."
            self._next = loop.time() + AGAIN

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
