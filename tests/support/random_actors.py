"""Who acts around runs of every kind: a customer, a carrier, other companies, and persons who approve."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from milepost import Saga

from tests.support.apps.ledger import SAGAS
from tests.support.apps.ledger_approvals import APPROVALS
from tests.support.apps.ledger_family import CROWD, crowd, family
from tests.support.apps.ledger_stage import Stage
from tests.support.nested_drawn import Leaf, leaves
from tests.support.person import Person
from tests.support.random_kinds import NESTED, REFUSED

DELIVERIES = ("early", "early and twice", "later", "later and twice", "never")
FLAT: list[Saga[Any]] = [*SAGAS, *APPROVALS, family, crowd]
OPEN_WAITS = (
    "SELECT r.saga, r.key, w.run_id, w.step, w.iteration, w.generation FROM milepost.wait AS w"
    " JOIN milepost.run AS r ON r.id = w.run_id WHERE w.state = 'OPEN' AND r.saga = ANY ($1)"
)
#: What a person has to answer: an approval, or an undo that as many kills have met as it had tries.
QUESTIONS = (
    "SELECT r.saga, r.key, s.name, s.state, s.asked->>'risk' AS risk"
    " FROM milepost.step AS s JOIN milepost.run AS r ON r.id = s.run_id"
    " WHERE s.wake_at IS NOT NULL AND (s.asked @> '{\"open\": true}' OR s.state = 'COMPENSATION_FAILED')"
    " ORDER BY s.since LIMIT 1"
)
#: Seconds between two looks.
LOOK = 0.3


@dataclass
class Actors:
    """What has been begun so far.

    Attributes:
        dice: Decides everything.
        runs: Name of the saga and key, by run.
        deliveries: How many parcels have been delivered, copies not counted.
        later: Deliveries that are under way.
        answered: Waits of drawn flows that got their event.
    """

    stage: Stage
    dice: random.Random
    ann: Person
    runs: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    deliveries: int = 0
    later: list[tuple[str, int]] = field(default_factory=list)
    answered: set[tuple[Any, ...]] = field(default_factory=set)

    async def begin(self, n: int) -> None:
        """Start run number n: every other one is a drawn flow."""
        name = f"r-{n}"
        if n % 2:
            tree, saga = list(NESTED.values())[n // 2 % len(NESTED)]
            await self._disturb(name, [leaf for leaf in leaves(tree) if leaf.kind in {"step", "tx"}])
        else:
            saga = FLAT[n // 2 % len(FLAT)]
            await self._prepare(saga.name, name)
        self.runs[await self.stage.start(saga, name)] = (saga.name, name)

    async def _disturb(self, name: str, steps: list[Leaf]) -> None:
        if steps and self.dice.random() < 0.4:
            point = self.dice.choice(["before", "after"])
            await self.stage.fault(
                name, self.dice.choice(steps).name, point, "raise", self.dice.choice([1, 2])
            )

    async def _prepare(self, saga: str, name: str) -> None:
        if saga == "parcel":
            await self._parcel(name)
        elif saga in REFUSED and self.dice.random() < 0.6:
            act, times = self.dice.choice([("refuse", 1), ("refuse", 1), ("raise", 1), ("raise", 2)])
            await self.stage.fault(name, self.dice.choice(REFUSED[saga]), "before", act, times)
        elif saga == "ask" and self.dice.random() < 0.5:
            await self.stage.fault(name, "act", self.dice.choice(["before", "after"]), "raise")
        elif saga == "family" and self.dice.random() < 0.5:
            side = self.dice.choice(["left", "right"])
            await self.stage.fault(f"{name}-{side}", "polish", "before", "refuse")
        elif saga == "crowd":
            for n in self.dice.sample(range(CROWD), self.dice.randrange(CROWD)):
                await self.stage.fault(f"{name}-{n}", "polish", "before", "refuse")

    async def _parcel(self, name: str) -> None:
        how = self.dice.choice(DELIVERIES)
        times = 2 if "twice" in how else 1
        if "early" in how:
            await self._deliver(name, times)
        elif "later" in how:
            self.later.append((name, times))

    async def _deliver(self, name: str, times: int) -> None:
        self.deliveries += 1
        await self.stage.deliver(name, times=times)

    async def bring_the_rest(self) -> None:
        """Deliver all parcels that are under way."""
        while self.later:
            await self._deliver(*self.later.pop())

    async def every_run(self) -> list[UUID]:
        """Return all runs, those that runs have started too."""
        rows = await self.stage.pool.fetch("SELECT id FROM milepost.run")
        return [row["id"] for row in rows]

    async def carry(self) -> None:
        """Deliver some parcel now and then, and every event that a drawn flow waits for."""
        leaf = {(name, one.name): one for name, (tree, _) in NESTED.items() for one in leaves(tree)}
        while True:
            await asyncio.sleep(LOOK)
            if self.later and self.dice.random() < 0.3:
                await self._deliver(*self.later.pop(self.dice.randrange(len(self.later))))
            for row in await self.stage.pool.fetch(OPEN_WAITS, list(NESTED)):
                wait = (row["run_id"], row["step"], row["iteration"], row["generation"])
                if leaf[row["saga"], row["step"]].fate == "ok" and wait not in self.answered:
                    self.answered.add(wait)
                    name, times = f"{row['key']}/{row['step']}", self.dice.choice([1, 1, 2])
                    await self.stage.deliver(name, times=times, of="nested.came", topic="came")

    async def decide(self) -> None:
        """Answer what is asked, one after the other; an answer that nobody hears is given again."""
        while True:
            await asyncio.sleep(LOOK)
            row = await self.stage.pool.fetchrow(QUESTIONS)
            if row is None:
                continue
            run, step = f"{row['saga']}/{row['key']}", row["name"]
            if row["state"] == "COMPENSATION_FAILED":
                await self.ann("runs", "retry", run, step, "--reason", "the other side is well")
                if row["risk"] == "CRITICAL":
                    await self.ann("confirm", run, "--reason", "it is", by="bob")
                continue
            how = ("--role", "finance", "--reason", "because")
            if step == "ok" and self.dice.random() < 0.3:
                await self.ann("reject", run, step, *how)
                continue
            for name in ("ann", "bob"):
                await self.ann("approve", run, step, *how, by=name)


@asynccontextmanager
async def acting(stage: Stage, dice: random.Random, ann: Person) -> AsyncIterator[Actors]:
    """Let everybody act as long as the block lasts."""
    actors = Actors(stage, dice, ann)
    tasks = [asyncio.create_task(actors.carry()), asyncio.create_task(actors.decide())]
    try:
        yield actors
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
