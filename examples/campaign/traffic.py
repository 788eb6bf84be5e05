"""What happens to the service: three campaigns, kills, a provider that is away for a while, and a person."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

import httpx

from ..stage.kills import Busy, Kills, calling
from ..stage.processes import DemoFailed, together, until
from .book import Campaigns, corrected
from .contracts import PlaceCampaign, Reader
from .person import Person
from .processes import ENGINES, Fleet
from .progress import LOOK, Progress

#: How long the provider is away, in seconds.
AWAY = 4.0
#: How many processes are killed: an engine, the provider, the other engine.
KILLS = 3
#: So many calls of an engine are open, at the least, when a process is killed.
CALLS = 3
#: So many readers are told to the service at a time.
BATCH = 1000


@dataclass
class Traffic:
    """Campaigns and kills of one run.

    Attributes:
        placed: The campaigns that the service has accepted.
    """

    fleet: Fleet
    readers: Sequence[Reader]
    campaigns: Campaigns
    kills: Kills
    progress: Progress
    person: Person
    placed: list[PlaceCampaign] = field(default_factory=list)

    async def run(self) -> None:
        """Place all campaigns and carry out all kills; returns when the campaigns have ended.

        Raises:
            DemoFailed: One was refused, a process did not come up again, or nothing moves any more.
        """
        async with httpx.AsyncClient(timeout=30) as http:
            await self._tell(http, self.readers)
            await together(
                self._place_all(http),
                self._kill_all(http),
                self.progress.watch(http),
                self.person.work(http),
            )

    async def _place_all(self, http: httpx.AsyncClient) -> None:
        first = (self.campaigns.partial, self.campaigns.person)
        for one in first:
            await self._place(http, one)
        await self._ended(*first)
        await self._tell(http, corrected(self.readers))
        await self._place(http, self.campaigns.again)
        await self._ended(self.campaigns.again)
        self.progress.over.set()

    async def _tell(self, http: httpx.AsyncClient, readers: Sequence[Reader]) -> None:
        for begin in range(0, len(readers), BATCH):
            body = [reader.model_dump() for reader in readers[begin : begin + BATCH]]
            (await http.post(f"{self.fleet.web}/readers", json=body)).raise_for_status()

    async def _place(self, http: httpx.AsyncClient, one: PlaceCampaign) -> None:
        for _ in range(2):  # asked for again it is the same
            answer = await http.post(f"{self.fleet.web}/campaigns", json=one.model_dump())
            if answer.status_code != 202:
                said = f"the service answered {answer.status_code} to {one.campaign_id}: {answer.text}"
                raise DemoFailed(said)
        self.placed.append(one)

    async def _ended(self, *campaigns: PlaceCampaign) -> None:
        async def check() -> bool:
            return all(one.campaign_id in self.progress.ended for one in campaigns)

        await until(check, "campaigns to end", every=LOOK, patience=None)

    async def _kill_all(self, http: httpx.AsyncClient) -> None:
        def at_calls(names: Sequence[str]) -> Awaitable[Busy]:
            return calling(http, "provider", self.fleet.provider, names, least=CALLS)

        async def away() -> Busy:
            busy = await at_calls(ENGINES)
            return ("provider", f"it was answering calls; it is away for {AWAY:.0f} s") if busy else None

        await self._sent(0.15)
        await self.kills.kill(lambda: at_calls(ENGINES[:1]))
        await self._sent(0.35)
        await self.kills.kill(away, away=AWAY)
        await self._sent(0.6)
        await self.kills.kill(lambda: at_calls(ENGINES[1:]))

    async def _sent(self, share: float) -> None:
        id = self.campaigns.partial.campaign_id

        async def check() -> bool:
            return self.progress.sent.get(id, 0) >= share * self.progress.of.get(id, 1)

        await until(check, f"{share:.0%} of the letters", every=LOOK, patience=None)
