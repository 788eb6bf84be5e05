"""The person who looks at campaigns below their threshold, by the real command line and by nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx

from ..stage.processes import milepost
from .progress import Progress

#: How long the command line waits for the answer, in seconds: an engine may be dead just now.
PATIENCE = 50
#: Pause between two looks at the worklist, in seconds.
LOOK = 5.0


@dataclass(frozen=True, slots=True)
class Word:
    """What the person did about a campaign.

    Attributes:
        sent: How many had got it by then.
        answer: The command line's.
    """

    campaign_id: str
    step: str
    sent: int
    answer: str


@dataclass
class Person:
    """Looks at the worklist, has the provider deliver to the hosts that it has blocked, and retries what failed.

    Args:
        env: Where the database is.
        provider: Where the provider answers.
        progress: How far the campaigns are.
        say: Called with each thing that was done.
    """

    env: Mapping[str, str]
    provider: str
    progress: Progress
    say: Callable[[str], None]
    words: list[Word] = field(default_factory=list)

    async def work(self, http: httpx.AsyncClient) -> None:
        """Do so until it is over."""
        while not self.progress.over.is_set():
            text = await milepost(self.env, "--json", "worklist")
            for entry in map(json.loads, text.splitlines()):
                if "retry" in entry["possible"]:  # else it stands still, and nobody is asked
                    await self._mend(http, str(entry["run"]), str(entry["step"]))
            await asyncio.sleep(LOOK)

    async def _mend(self, http: httpx.AsyncClient, run: str, step: str) -> None:
        campaign_id = run.partition("/")[2]
        try:
            await self.progress.look(http)
            sent = self.progress.sent.get(campaign_id, 0)
            (await http.post(f"{self.provider}/unblock")).raise_for_status()
        except httpx.TransportError:  # it is away for a moment; the run waits for the next look
            return
        reason = "the provider had blocked a host; it has been called"
        words = ("--as", "ann", "runs", "retry", run, step, "--reason", reason, "--wait", str(PATIENCE))
        answer = (await milepost(self.env, *words)).strip()
        self.words.append(Word(campaign_id, step, sent, answer))
        self.say(f"  ann: {answer}")
