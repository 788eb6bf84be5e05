"""What the demo does to the shop: places orders over HTTP, and kills processes while they work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from ..stage.processes import DemoFailed, milepost, until
from .processes import Fleet

#: Most orders a second.
RATE = 15.0
#: Orders come in for this long at least, in seconds, so that the kills fall into that time.
OPEN_FOR = 10.0


@dataclass(frozen=True)
class Kill:
    """A kill that was carried out.

    Attributes:
        pid: The id of the process that was killed.
        placed: Orders placed by then.
        work: What it was doing.
    """

    process: str
    pid: int
    placed: int
    work: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


@dataclass
class Traffic:
    """Orders and kills of one demo.

    Attributes:
        tag: Begins every order's id, so that two demos never share one.
        accepted: Amount as decimal text by order id, of the orders that the shop accepted.
        on_order: Called after every accepted order.
        on_kill: Called after every kill.
    """

    fleet: Fleet
    orders: int
    tag: str
    on_order: Callable[[], None]
    on_kill: Callable[[Kill], None]
    accepted: dict[str, str] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    _fresh: asyncio.Event = field(default_factory=asyncio.Event)

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
            first = _first(group)
            raise DemoFailed(str(first) or repr(first)) from first

    async def _place_all(self, http: httpx.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        start, gap = loop.time(), max(1 / RATE, OPEN_FOR / self.orders)
        async with asyncio.TaskGroup() as tasks:
            for n in range(self.orders):
                await asyncio.sleep(max(0.0, start + n * gap - loop.time()))
                tasks.create_task(self._place(http, n))

    async def _place(self, http: httpx.AsyncClient, n: int) -> None:
        order_id, amount = f"{self.tag}-{n:03d}", f"{10 + n % 90}.{n % 100:02d}"
        body = {"order_id": order_id, "sku": "tea", "amount": amount}
        response = await http.post(f"{self.fleet.url('shop-api')}/orders", json=body)
        if response.status_code != 202:
            raise DemoFailed(f"the shop answered {response.status_code} to order {order_id}: {response.text}")
        self.accepted[order_id] = amount
        self._fresh.set()
        self.on_order()

    async def _kill_all(self, http: httpx.AsyncClient) -> None:
        await self._kill("relay", 0.2, self._order_just_accepted)
        await self._kill("worker-1", 0.45, lambda: self._open_calls(http))
        await self._kill("orchestrator", 0.7, lambda: self._parcels_under_way(http))
        await self.fleet.come_up()

    async def _kill(self, name: str, share: float, at_work: Callable[[], Awaitable[str]]) -> None:
        """Kill a process at a moment when it has work, look what is left undone, and start it again."""
        await until(lambda: _true(len(self.accepted) >= share * self.orders), f"{share:.0%} of the orders")
        work = await until(at_work, f"a moment at which {name} has work")
        pid = self.fleet.kill(name)
        placed = len(self.accepted)
        if name == "relay":
            lag = json.loads(await milepost(self.fleet.env, "outbox", "--json"))["lag"]
            work = f"{work}; {lag} messages waited in the outbox until it came back"
        else:
            await asyncio.sleep(1)
        kill = Kill(name, pid, placed, work)
        self.kills.append(kill)
        self.on_kill(kill)
        self.fleet.start(name)

    async def _order_just_accepted(self) -> str:
        """An order's row and messages were committed a moment ago, and only the relay can carry them on."""
        self._fresh.clear()
        await self._fresh.wait()
        return "orders were being committed"

    async def _open_calls(self, http: httpx.AsyncClient) -> str:
        open_calls = (await http.get(f"{self.fleet.url('bank')}/calls")).json()
        count = open_calls.get("worker-1", 0)
        return f"the bank was answering {count} of its calls" if count else ""

    async def _parcels_under_way(self, http: httpx.AsyncClient) -> str:
        count = (await http.get(f"{self.fleet.url('carrier')}/due")).json()["due"]
        return f"{count} deliveries were about to be reported" if count else ""


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _true(value: bool) -> bool:
    return value
