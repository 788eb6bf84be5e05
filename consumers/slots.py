"""Places to work in, and who gets the next one: HIGH before NORMAL before LOW, and nobody is passed over for ever.

Promised, for one queue of one process with n slots of which r are reserved:

- never more than n are taken, and never more than n - r by what is not HIGH;
- a free slot goes to the highest priority that waits, among equals to who came first;
- after `PASSED_OVER` grants that passed over somebody of a lower priority who could have had the slot, the next such
  slot goes to whoever of those has waited longest. So of ten slots that LOW could have, it or NORMAL gets one, and
  what is reserved stays with HIGH all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ..schemas.states import Priority

#: Grants in a row that may pass over somebody.
PASSED_OVER = 9


@dataclass(eq=False, slots=True)
class Ticket:
    """Somebody who waits for a slot, or has it."""

    priority: Priority
    asked: int
    granted: bool = False


@dataclass
class Turns:
    """Who has a slot, and who is next; decides only, waits for nothing.

    Args:
        total: Slots in all, at least 1.
        reserved: Of these only for HIGH, fewer than all.
    """

    total: int
    reserved: int = 0
    taken: int = 0
    taken_by_others: int = 0
    passed: int = 0
    _asked: int = 0
    _waiting: dict[Priority, deque[Ticket]] = field(default_factory=lambda: {p: deque() for p in Priority})

    def ask(self, priority: Priority) -> Ticket:
        """Stand in line; `grant` says who is next."""
        self._asked += 1
        ticket = Ticket(priority, self._asked)
        self._waiting[priority].append(ticket)
        return ticket

    def grant(self) -> list[Ticket]:
        """Give every slot that can be given, and return who got one, in order."""
        given = []
        while (ticket := self._next()) is not None:
            self._waiting[ticket.priority].popleft()
            self._take(ticket)
            given.append(ticket)
        return given

    def _next(self) -> Ticket | None:
        able = [line[0] for line in self._waiting.values() if line and self._fits(line[0])]
        if len(able) < 2:
            return able[0] if able else None
        if self.passed < PASSED_OVER:
            self.passed += 1
            return able[0]
        self.passed = 0
        return min(able[1:], key=lambda ticket: ticket.asked)

    def _fits(self, ticket: Ticket) -> bool:
        if self.taken >= self.total:
            return False
        return ticket.priority is Priority.HIGH or self.taken_by_others < self.total - self.reserved

    def _take(self, ticket: Ticket) -> None:
        ticket.granted = True
        self.taken += 1
        self.taken_by_others += ticket.priority is not Priority.HIGH

    def leave(self, ticket: Ticket) -> None:
        """Give a slot back, or wait no longer."""
        if ticket.granted:
            ticket.granted = False
            self.taken -= 1
            self.taken_by_others -= ticket.priority is not Priority.HIGH
        elif ticket in self._waiting[ticket.priority]:
            self._waiting[ticket.priority].remove(ticket)

    def kept_from(self, priority: Priority) -> bool:
        """Whether somebody of a higher priority waits, who should not wait for what comes after the present work."""
        for of, line in self._waiting.items():
            if of is priority:
                return False
            if line:
                return True
        return False


class Slots:
    """Slots that tasks wait for.

    Args:
        total: In all.
        reserved: Of these only for HIGH.
    """

    def __init__(self, total: int, *, reserved: int = 0) -> None:
        self._turns = Turns(total, min(reserved, total - 1))
        self._futures: dict[Ticket, asyncio.Future[None]] = {}

    @property
    def total(self) -> int:
        """Slots in all."""
        return self._turns.total

    @property
    def taken(self) -> int:
        """Slots that somebody has."""
        return self._turns.taken

    def take(self, priority: Priority) -> Ticket | None:
        """Return a slot if one is free and nobody is before; None otherwise."""
        ticket = self._turns.ask(priority)
        self._grant()
        if ticket.granted:
            return ticket
        self.release(ticket)
        return None

    async def acquire(self, priority: Priority = Priority.NORMAL) -> Ticket:
        """Wait for a slot; whoever is cancelled meanwhile waits no longer."""
        ticket = self._turns.ask(priority)
        self._grant()
        if ticket.granted:
            return ticket
        future = self._futures[ticket] = asyncio.get_running_loop().create_future()
        try:
            await future
        except BaseException:
            self.release(ticket)
            raise
        finally:
            self._futures.pop(ticket, None)
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Give a slot back."""
        self._turns.leave(ticket)
        self._grant()

    def kept_from(self, priority: Priority) -> bool:
        """Whether somebody of a higher priority waits for a slot."""
        return self._turns.kept_from(priority)

    def _grant(self) -> None:
        for ticket in self._turns.grant():
            future = self._futures.get(ticket)
            if future is not None and not future.done():
                future.set_result(None)
