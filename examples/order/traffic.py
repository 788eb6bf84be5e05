"""What happens to the shop: orders come in over HTTP, and engines are killed while they work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx

from ..stage.kills import Busy, Kills, calling
from ..stage.processes import DemoFailed, together, until
from .book import Placed, rivals
from .processes import ENGINES, Fleet

#: The orders come in within that time, in seconds; the second half of them once the first kill is over.
OPEN_FOR = 6.0
#: How many engines are killed.
KILLS = 3


@dataclass
class Traffic:
    """Orders and kills of one run.

    Args:
        orders: What comes in.
        decided: How often a person has said something so far.

    Attributes:
        accepted: The orders that the shop has accepted.
        open_for_persons: Set after two kills: whatever waited for a person until then has lost nothing.
    """

    fleet: Fleet
    orders: Sequence[Placed]
    kills: Kills
    decided: Callable[[], int]
    accepted: list[Placed] = field(default_factory=list)
    open_for_persons: asyncio.Event = field(default_factory=asyncio.Event)
    _first_kill_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Place all orders and carry out all kills.

        Raises:
            DemoFailed: An order was refused, or a process did not come up again.
        """
        async with httpx.AsyncClient(timeout=10) as http:
            await together(self._place_all(http), self._kill_all(http))

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
        await self._kill(0.1, lambda: calling(http, "bank", self.fleet.url("bank"), ENGINES))
        self._first_kill_over.set()
        await self._kill(0.5, lambda: self._parcels(http))
        self.open_for_persons.set()
        await self._kill(0.5, self._word)

    async def _kill(self, share: float, at_work: Callable[[], Awaitable[Busy]]) -> None:
        async def enough() -> bool:
            return len(self.accepted) >= int(share * len(self.orders))

        await until(enough, f"{share:.0%} of the orders")
        await self.kills.kill(at_work)

    async def _parcels(self, http: httpx.AsyncClient) -> Busy:
        count = (await http.get(f"{self.fleet.url('carrier')}/due")).json()["due"]
        return (ENGINES[0], f"{count} parcels were on their way") if count else None

    async def _word(self) -> Busy:
        return (ENGINES[1], "a person had just decided") if self.decided() else None
