"""How far the campaigns are: told while they run, and given up when nothing moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

import httpx

from ..stage.processes import DemoFailed
from .facts import ENDED, states
from .processes import Fleet

#: It is given up when nothing has moved for so long, in seconds.
DEADLINE = 90.0
#: Pauses between two looks at the service and between two lines for people, in seconds.
LOOK, TELL = 0.3, 5.0


@dataclass
class Progress:
    """Looks at the campaigns.

    Attributes:
        say: Called with a line for people.
        sent: How many have got each campaign so far, by id.
        of: How many are to get each, by id.
        ended: The states of those that have ended, by id.
        over: Set when nothing is left to be looked at.
    """

    fleet: Fleet
    say: Callable[[str], None]
    sent: Mapping[str, int] = field(default_factory=dict)
    of: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _states: Mapping[str, str] = field(default_factory=dict)

    async def watch(self, http: httpx.AsyncClient) -> None:
        """Look until it is over.

        Raises:
            DemoFailed: Nothing moves any more.
        """
        told, moved, before = 0.0, monotonic(), ""
        while not self.over.is_set():
            await self.look(http)
            if (now := self._line()) != before:
                moved, before = monotonic(), now
            if self.of and monotonic() > told + TELL:
                told = monotonic()
                self._states = await states(self.fleet.env, "campaign")
                self.ended = {id: state for id, state in self._states.items() if state in ENDED}
                await self.look(http)
                self.say(f"  {self._line()}")
            if monotonic() > moved + DEADLINE:
                raise DemoFailed(f"nothing has moved for {DEADLINE:.0f} s: {before}")
            await asyncio.sleep(LOOK)

    async def look(self, http: httpx.AsyncClient) -> None:
        """Count anew."""
        found = (await http.get(f"{self.fleet.web}/campaigns")).json()
        self.sent = {id: counts["sent"] for id, counts in found.items()}
        self.of = {id: counts["recipients"] for id, counts in found.items()}

    def _line(self) -> str:
        return "   ".join(
            f"{id} {self.sent[id]:,}/{of:,} {self._states.get(id, '').lower().replace('_', ' ')}".rstrip()
            for id, of in sorted(self.of.items())
        )
