"""The queues of a service: their topics, and how much of each a process does at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..schemas.errors import StartError
from ..schemas.messages import compensation_topic, work_topic
from ..schemas.queues import queue_numbers
from ..schemas.states import Priority
from .slots import Slots

if TYPE_CHECKING:
    from .app import Milepost

#: Of the slots of a queue that runs of priority HIGH use, one in so many is for these alone.
RESERVED = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process does of one queue.

    Attributes:
        total: Steps at once.
        reserved: Of these only of runs of priority HIGH.
    """

    total: int
    reserved: int

    @property
    def slots(self) -> Slots:
        """New slots, all free."""
        return Slots(self.total, reserved=self.reserved)


def lane_topics(service: Milepost) -> list[str]:
    """Return the work and compensation topics of all queues: one for each priority that runs can have."""
    known = service.definitions
    return [
        topic(service.name, queue, priority)
        for queue in known.queues
        for topic in (work_topic, compensation_topic)
        for priority in known.priorities(queue)
    ]


def plan(service: Milepost, queues: Iterable[str]) -> Mapping[str, Plan]:
    """Return how much of each queue a process does at once, as its settings say.

    Raises:
        StartError: MP207 for settings of a queue that no saga uses, or that leave nothing.
    """
    settings = service.settings
    totals, reserves = queue_numbers(settings.queue_concurrency), queue_numbers(settings.queue_reserved)
    _known(service, "MILEPOST_QUEUE_CONCURRENCY", totals)
    _known(service, "MILEPOST_QUEUE_RESERVED", reserves)
    plans = {}
    for queue in queues:
        total = totals.get(queue, settings.step_concurrency)
        with_high = Priority.HIGH in service.definitions.priorities(queue)
        usual = max(1, total // RESERVED) if with_high and total > 1 else 0
        reserved = reserves.get(queue, usual)
        if total < 1 or reserved >= total:
            raise StartError(
                "MP207",
                f"queue {queue} has {total} slots, {reserved} of them reserved, so other work would never be done. "
                "Mend MILEPOST_QUEUE_CONCURRENCY or MILEPOST_QUEUE_RESERVED.",
            )
        plans[queue] = Plan(total, reserved)
    return plans


def _known(service: Milepost, name: str, numbers: Mapping[str, int]) -> None:
    unknown = sorted(numbers.keys() - set(service.definitions.queues))
    if unknown:
        raise StartError(
            "MP207",
            f"{name}: queue {', '.join(unknown)}: unknown. Known: {', '.join(service.definitions.queues) or 'none'}.",
        )
