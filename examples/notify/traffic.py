"""What is done to the service: jobs over HTTP, some of them twice, and kills of processes while they work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from ..stage.kills import Busy, Kills, calling
from ..stage.processes import DemoFailed, together, until
from .faults import number_of
from .processes import ENGINES, Fleet

#: Jobs come in for this long, in seconds, so that the kills fall into that time.
OPEN_FOR = 4.0
#: How often a job is asked for until it is accepted, and the pause between, in seconds.
TRIES, PAUSE = 60, 0.5
#: After this share of the jobs the rest waits until two processes have been killed and are back; then the third is.
LAST = 0.7


@dataclass
class Traffic:
    """Jobs and kills.

    Attributes:
        count: How many jobs.
        tag: Begins every job's id.
        accepted: Ids of the jobs that were accepted.
    """

    fleet: Fleet
    count: int
    tag: str
    kills: Kills
    accepted: list[str] = field(default_factory=list)
    _calm: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Ask for all jobs and carry out all kills.

        Raises:
            DemoFailed: A job was refused, or a process did not come up again.
        """
        async with httpx.AsyncClient(timeout=5) as http:
            await together(self._ask_all(http), self._kill_all(http))

    async def _ask_all(self, http: httpx.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        start, gap = loop.time(), OPEN_FOR / self.count
        async with asyncio.TaskGroup() as tasks:
            for n in range(self.count):
                await asyncio.sleep(max(0.0, start + n * gap - loop.time()))
                if n >= LAST * self.count:
                    await self._calm.wait()
                tasks.create_task(self._ask(http, f"{self.tag}-{n:03d}"))

    async def _ask(self, http: httpx.AsyncClient, id: str) -> None:
        """Ask until it is accepted: the id is the idempotency key, so asking again does no harm."""
        body = {"id": id, "recipient": f"{id}@example.com", "name": f"reader {number_of(id)}"}
        for _ in range(TRIES):
            try:
                answer = await http.post(f"{self.fleet.web}/notifications", json=body)
            except httpx.HTTPError:
                await asyncio.sleep(PAUSE)
                continue
            if answer.status_code != 202:
                raise DemoFailed(f"the service answered {answer.status_code} to {id}: {answer.text}")
            if number_of(id) % 10 == 0 and id not in self.accepted:
                again = await http.post(f"{self.fleet.web}/notifications", json=body)
                if again.json() != answer.json():
                    raise DemoFailed(f"{id} asked for twice: {answer.text} and {again.text}")
            self.accepted.append(id)
            return
        raise DemoFailed(f"{id} was not accepted in {TRIES} tries")

    async def _kill_all(self, http: httpx.AsyncClient) -> None:
        def at_a_call() -> Awaitable[Busy]:
            return calling(http, "provider", self.fleet.provider, ENGINES)

        await self._kill(0.2, at_a_call)
        await self._kill(0.5, lambda: self._reporting(http))
        self._calm.set()
        await self._kill(LAST, at_a_call)

    async def _kill(self, share: float, at_work: Callable[[], Awaitable[Busy]]) -> None:
        async def enough() -> bool:
            return len(self.accepted) >= int(share * self.count)

        await until(enough, f"{share:.0%} of the jobs")
        await self.kills.kill(at_work)

    async def _reporting(self, http: httpx.AsyncClient) -> Busy:
        """Name the web process, when it is about to be called by the provider."""
        count = (await http.get(f"{self.fleet.provider}/due")).json()["due"]
        return ("web", f"{count} reports were about to come") if count else None
