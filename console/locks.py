"""What operators see of a run's resource lock. Pure: no clock, no driver."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LockLine:
    """The lock of a live run.

    Attributes:
        held: Whether the run has it; else it waits for it.
        holder: Who has it, None while it is being passed on.
        since: Since when.
        ahead: How many wait before this run; 0 for the one that has it.
        waiting: How many wait in all.
    """

    name: str
    held: bool
    holder: str | None
    since: datetime | None
    ahead: int
    waiting: int

    @property
    def waits(self) -> str:
        """What a run waits for, in words: "waits for lock stock:tea held by order/o-1 since 2026-12-02 18:13Z"."""
        by = ", which is being passed on"
        if self.holder is not None and self.since is not None:
            by = f" held by {self.holder} since {self.since:%Y-%m-%d %H:%MZ}"
        return f"waits for lock {self.name}{by}" + (f", {self.ahead} before it" if self.ahead else "")

    @property
    def holds(self) -> str:
        """What a run has, in words."""
        return f"holds lock {self.name}" + (f", {self.waiting} waiting" if self.waiting else "")

    @property
    def item(self) -> dict[str, object]:
        """The same for machines."""
        return {
            "name": self.name,
            "held": self.held,
            "holder": self.holder,
            "since": self.since,
            "ahead": self.ahead,
            "waiting": self.waiting,
        }
