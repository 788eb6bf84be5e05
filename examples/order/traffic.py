"""What happens to the shop: orders come in over HTTP, and engines are killed while they work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx

from ..stage.processes import DemoFailed, until
from .book import Placed, rivals
from .processes import ENGINES, Fleet

#: The orders come in within that time, in seconds; the second half of them once the first kill is over.
OPEN_FOR = 6.0
#: How many engines are killed.
KILLS = 3


@dataclass(frozen=True)
class Kill:
    """A kill that was carried out: of which process, its id, and what it was doing."""

    process: str
    pid: int
    work: str


@dataclass
class Traffic:
    """Orders and kills of one run.

    Args:
        orders: What comes in.
        say: Where progress goes.
        decided: How often a person has said something so far.

    Attributes:
        accepted: The orders that the shop has accepted.
        open_for_persons: Set after two kills: whatever waited for a person until then has lost nothing.
    """

    fleet: Fleet
    orders: Sequence[Placed]
    say: Callable[[str], None]
    decided: Callable[[], int]
    accepted: list[Placed] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    open_for_persons: asyncio.Event = field(default_factory=asyncio.Event)
    _first_kill_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Place all orders and carry out all kills.

        Raises:
            DemoFailed: An order was refused, or a process did not come up again.
        """
        try:
            async with httpx.AsyncClient(timeout=10) as http, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._place_all(http))
                tasks.create_task(self._kill_all(http))
        except* (DemoFailed, httpx.HTTPError) as group:
            raise DemoFailed("; ".join(str(error) or repr(error) for error in group.exceptions)) from group

    async def _place_all(self, http: httpx.AsyncClient) -> None:
        waves = list(rivals(self.orders).values())
        together = {order.order_id for wave in waves for order in wave}
        waves += [[order] for order in self.orders if order.order_id not in together]
        waves.sort(key=lambda wave: wave[0].order_id)
        async with asyncio.TaskGroup() as tasks:
            for n, wave in enumerate(waves):
                await asyncio.sleep(OPEN_FOR / len(waves))
                if n >= len(waves) // 2:
                    await self._first_kill_over.wait()
                for order in wave:
                    tasks.create_task(self._place(http, order))

    async def _place(self, http: httpx.AsyncClient, order: Placed) -> None:
        answer = await http.post(f"{self.fleet.url('web')}/orders", json=order.as_json())
        if answer.status_code != 202:
            raise DemoFailed(f"the shop answered {answer.status_code} to {order.order_id}: {answer.text}")
        self.accepted.append(order)

    async def _kill_all(self, http: httpx.AsyncClient) -> None:
        await self._kill(0.1, ENGINES, lambda name: self._charging(http, name))
        self._first_kill_over.set()
        await self._kill(0.5, ENGINES[:1], lambda _name: self._parcels(http))
        self.open_for_persons.set()
        await self._kill(0.5, ENGINES[1:], lambda _name: self._word())

    async def _kill(
        self, share: float, names: Sequence[str], at_work: Callable[[str], Awaitable[str]]
    ) -> None:
        """Kill an engine at a moment when it has work, and start it again a second later."""

        async def enough() -> bool:
            return len(self.accepted) >= int(share * len(self.orders))

        async def busy() -> tuple[str, str] | None:
            for name in names:
                if work := await at_work(name):
                    return name, work
            return None

        await until(enough, f"{share:.0%} of the orders")
        found = await until(busy, "a moment at which an engine has work")
        assert found is not None
        name, work = found
        kill = Kill(name, self.fleet.kill(name), work)
        self.kills.append(kill)
        self.say(f"SIGKILL {name} (pid {kill.pid}): {work}")
        await asyncio.sleep(1)
        self.fleet.start(name)
        await self.fleet.come_up(name)

    async def _charging(self, http: httpx.AsyncClient, name: str) -> str:
        count = (await http.get(f"{self.fleet.url('bank')}/calls")).json().get(name, 0)
        return f"the bank was answering {count} of its calls" if count else ""

    async def _parcels(self, http: httpx.AsyncClient) -> str:
        count = (await http.get(f"{self.fleet.url('carrier')}/due")).json()["due"]
        return f"{count} parcels were on their way" if count else ""

    async def _word(self) -> str:
        return "a person had just decided" if self.decided() else ""
