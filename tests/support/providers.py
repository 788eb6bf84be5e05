"""Outside systems for the simulated world: what they did under which key, and what is still on its way to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

Said: TypeAlias = Literal["done", "refused"]


@dataclass
class Flight:
    """A call that has left and not yet arrived; it arrives before `until` or never (None: whenever it likes)."""

    key: str
    dedupes: bool
    until: datetime | None


@dataclass
class Ledger:
    """Append-only effects by operation key.

    Attributes:
        effects: How often something was done under a key.
        calls: How often a call arrived under a key.
        undone: Keys of undone operations, in the order of their undoing.
    """

    effects: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    undone: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    flights: list[Flight] = field(default_factory=list)

    def do(self, key: str, *, dedupes: bool) -> Said:
        """Do it; one that dedupes remembers what it answered, and refuses a do that comes after its undo."""
        self.calls[key] += 1
        if dedupes and (key in self.refused or key in self.undone):
            return "refused"
        if not dedupes or not self.effects[key]:
            self.effects[key] += 1
        return "done"

    def refuse(self, key: str, *, dedupes: bool) -> Said:
        """Say no for good, unless it is one that dedupes and has done it already."""
        self.calls[key] += 1
        if dedupes and self.effects[key] and key not in self.undone:
            return "done"
        if dedupes:
            self.refused.add(key)
        return "refused"

    def undo(self, key: str) -> None:
        """Undo it; twice is once."""
        if key not in self.undone:
            self.undone.append(key)

    def send(self, key: str, *, dedupes: bool, until: datetime | None) -> None:
        """Let a call leave that arrives later, or never."""
        self.flights.append(Flight(key, dedupes, until))

    def land(self, place: int) -> None:
        """Let a call arrive."""
        flight = self.flights.pop(place)
        self.do(flight.key, dedupes=flight.dedupes)

    def hurry(self, key: str, until: datetime) -> None:
        """Calls under a key arrive by then, or never."""
        for flight in self.flights:
            if flight.key == key and flight.until is not None:
                flight.until = min(flight.until, until)

    def pass_time(self, now: datetime, *, arrive: bool) -> None:
        """Calls whose time has passed are lost, or have arrived at the last moment."""
        over = [flight for flight in self.flights if flight.until is not None and flight.until <= now]
        self.flights = [flight for flight in self.flights if flight not in over]
        for flight in over if arrive else []:
            self.do(flight.key, dedupes=flight.dedupes)

    def land_all(self) -> None:
        """Let everything arrive that is still on its way."""
        while self.flights:
            self.land(0)
