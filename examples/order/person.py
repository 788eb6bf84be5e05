"""The person who approves and rejects, by the real command line and by nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..shop.faults import number_of
from ..stage.processes import milepost
from .book import claim_is_refused, rejected_first
from .saga import CLAIMS, payback_ok, refund

Said: TypeAlias = Literal["approve", "reject", "retry"]

#: How long the command line waits for the answer, in seconds: an engine may be dead just now.
PATIENCE = 50
#: Pause between two looks at the worklist, in seconds.
LOOK = 1.0


@dataclass(frozen=True, slots=True)
class Word:
    """What a person said about one order's money, and the command line's answer."""

    order_id: str
    step: str
    said: Said
    by: str
    answer: str


@dataclass
class Person:
    """Looks at the worklist, and says yes or no to whatever waits there.

    Args:
        env: Where the database is.
        say: Called with each thing that was said.
    """

    env: Mapping[str, str]
    say: Callable[[Word], None]
    words: list[Word] = field(default_factory=list)

    async def work(self, begin: asyncio.Event) -> None:
        """Do so from that moment on, until cancelled."""
        await begin.wait()
        while True:
            for entry in await self._worklist():
                await self._decide(entry)
            await asyncio.sleep(LOOK)

    async def _worklist(self) -> list[dict[str, Any]]:
        text = await milepost(self.env, "--json", "worklist")
        entries: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        return [
            entry for entry in entries if entry["possible"]
        ]  # what only stands still is nobody's to decide

    async def _decide(self, entry: Mapping[str, Any]) -> None:
        order_id, step = str(entry["run"]).partition("/")[2], str(entry["step"])
        n, asked_before = number_of(order_id), any(word.order_id == order_id for word in self.words)
        if step == payback_ok.name:
            said: Said = "reject" if claim_is_refused(n) else "approve"
            await self._say(order_id, step, said, "carol", "the claim was looked into", "--role", CLAIMS)
        elif step == refund.name and entry["state"] == "COMPENSATION_FAILED":
            await self._say(order_id, step, "retry", "bob", "ann was wrong: the card is the right one")
        elif step == refund.name:
            said = "reject" if rejected_first(n) and not asked_before else "approve"
            await self._say(order_id, step, said, "bob" if asked_before else "ann", "seen in the bank's list")

    async def _say(self, order_id: str, step: str, said: Said, by: str, reason: str, *more: str) -> None:
        command = ("runs", "retry") if said == "retry" else (said,)
        more = (*more, "--wait", str(PATIENCE))
        words = ("--as", by, *command, f"order/{order_id}", step, "--reason", reason, *more)
        answer = await milepost(self.env, *words)
        word = Word(order_id, step, said, by, answer.strip())
        self.words.append(word)
        self.say(word)
