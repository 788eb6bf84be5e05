"""What an intake has done since it began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..streams import measures
from ..streams.metrics import meters
from .model import Act, Item, Plan


@dataclass(slots=True)
class Counts:
    """Numbers of records.

    Attributes:
        consumer: Whose.
        unidentified: Events without an id, which got one from topic, partition and offset.
    """

    applied: int = 0
    duplicates: int = 0
    parked: int = 0
    passed: int = 0
    unidentified: int = 0
    consumer: str = ""

    def read(self, items: Sequence[Item]) -> None:
        """Count what was read."""
        self.unidentified += sum(item.envelope is not None and not item.envelope.identified for item in items)

    def done(self, plan: Plan, items: Sequence[Item]) -> None:
        """Count what has become of a batch."""
        passed = sum(item.act is Act.PASS for item in items)
        self.applied += len(plan.handle)
        self.duplicates += plan.duplicates
        self.passed += passed
        self._tell("applied", len(plan.handle))
        self._tell("duplicate", plan.duplicates)
        self._tell("passed", passed)
        self.park(len(plan.park))

    def park(self, amount: int) -> None:
        """Count what was put aside."""
        self.parked += amount
        self._tell("parked", amount)

    def _tell(self, outcome: str, amount: int) -> None:
        if amount and (found := meters()) is not None:
            found.add(measures.EVENTS, (self.consumer, outcome), amount)

    def words(self) -> str:
        """Say what people should know of: events that nobody can recognise when they come again, and letters."""
        found = {"parked": self.parked, "without an id": self.unidentified}
        return ", ".join(f"{number} {what}" for what, number in found.items() if number)
