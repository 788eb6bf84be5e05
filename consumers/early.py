"""Work that this process's own relay has seen committed, claimed at once instead of when it comes back from Kafka.

A run's first step, and each that is not claimed inline, is announced by a row of the outbox. Where relay and worker
are one process, the way over Kafka is most of the time until such a step begins. The row goes to Kafka all the same:
whoever reads it finds the step claimed. So nothing rests on what is done here, and it can be left out at any time.
Temporal calls the same an eager start: https://docs.temporal.io/develop/advanced-start-options#eager-workflow-start
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import ValidationError
from pydantic_core import from_json

from ..outbox.position import Row
from ..schemas.envelope import Record
from ..schemas.messages import WorkMessage, priority_of
from .worker import Worker

logger = logging.getLogger("milepost")

#: Rows at once up to which they are looked at: with more the way over Kafka is not what makes a step wait.
MOST_ROWS = 64
#: Claims that are remembered until their record comes; those of a partition that another process reads never do.
REMEMBERED = 1_000

#: Id of an announcement (ce_id), the same in its row and in its record.
_Announced: TypeAlias = str


class Early:
    """What a relay and the workers of one process know of each other."""

    def __init__(self) -> None:
        self._lanes: dict[str, Worker] = {}
        self._claims: OrderedDict[_Announced, asyncio.Task[bool]] = OrderedDict()

    def serve(self, topics: Sequence[str], worker: Worker) -> None:
        """Let a worker have what is announced on some topics."""
        self._lanes.update(dict.fromkeys(topics, worker))

    def seen(self, rows: Sequence[Row]) -> bool:
        """Offer the workers what committed rows announce; called by the relay before it sends them.

        Returns:
            Whether the workers took all of them.
        """
        if len(rows) > MOST_ROWS:
            return False
        taken = [self._offer(row) for row in rows]
        return all(taken)

    def _offer(self, row: Row) -> bool:
        _, topic, _, value, headers = row
        worker = self._lanes.get(topic)
        if worker is None:
            return False
        announced, message = _read(value, headers)
        if announced in self._claims:
            return True
        claim = None if message is None else worker.offer(message, priority_of(topic))
        if claim is None:
            return False
        claim.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # what failed is tried by its record
        self._claims[announced] = claim
        if len(self._claims) > REMEMBERED:
            self._claims.popitem(last=False)
        return True

    async def unclaimed(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that were not claimed from their rows; each is told of once."""
        return [record for record in records if not await self._was_claimed(record)]

    async def _was_claimed(self, record: Record) -> bool:
        if not self._claims:
            return False
        announced = next((value for name, value in record.headers if name == "ce_id"), None)
        claim = self._claims.pop((announced or b"").decode(errors="replace"), None)
        if claim is None:
            return False
        await asyncio.wait({claim})
        return not claim.cancelled() and claim.exception() is None and claim.result()


def _read(value: bytes | None, headers: str) -> tuple[_Announced, WorkMessage | None]:
    """Return an announcement's id and what it says; None for what the reader of the topic is to complain of."""
    try:
        named: Mapping[str, object] = from_json(headers)
        if value is not None and named["ce_type"] == WorkMessage.message_type:
            return str(named["ce_id"]), WorkMessage.model_validate_json(value)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        logger.debug("a row of a work topic is no message of ours: %s", error)
    return "", None
