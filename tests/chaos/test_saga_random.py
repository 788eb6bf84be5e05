"""Processes are killed at random moments while runs of every kind are under way; the ledger is right all the same.

MILEPOST_CHAOS=long takes ten times as many runs and kills; MILEPOST_CHAOS_SEED repeats one order of events.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from milepost import Saga

from tests.support.apps.ledger import SAGAS, WORDS, Job, parcel
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import Supervised, supervised
from tests.support.waiting import until

TIMES = 10 if os.environ.get("MILEPOST_CHAOS") == "long" else 1
SEED = int(os.environ.get("MILEPOST_CHAOS_SEED", "20240229"))
RUNS, KILLS = 60 * TIMES, 10 * TIMES
PROCESSES = (
    "relay",
    "relay,orchestrator,waker",
    "worker,compensator",
    "worker,compensator",
    "orchestrator,signals,consumers,waker,upkeep",
)
DELIVERIES = ("early", "early and twice", "later", "later and twice", "never")


@dataclass
class Chaos:
    """What has been begun so far.

    Args:
        stage: The service.
        dice: Decides everything.
    """

    stage: Stage
    dice: random.Random
    runs: dict[UUID, tuple[Saga[Job], str]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    later: list[tuple[str, int]] = field(default_factory=list)

    async def begin(self, n: int) -> None:
        """Start run number n, of the next kind."""
        saga, name = SAGAS[n % len(SAGAS)], f"r-{n}"
        if saga is parcel:
            await self._parcel(name)
        elif saga.name in {"chain", "blind"} and self.dice.random() < 0.5:
            what = self.dice.choice(WORDS if saga.name == "chain" else ("first", "second", "third"))
            act, times = self.dice.choice([("refuse", 1), ("raise", 1), ("raise", 2)])
            await self.stage.fault(name, what, "before", act, times)
        elif saga.name == "ask" and self.dice.random() < 0.5:
            await self.stage.fault(name, "act", self.dice.choice(["before", "after"]), "raise")
        self.runs[await self.stage.start(saga, name)] = (saga, name)

    async def _parcel(self, name: str) -> None:
        how = self.dice.choice(DELIVERIES)
        times = 2 if "twice" in how else 1
        if "early" in how:
            self.events.append(await self.stage.deliver(name, times=times))
        elif "later" in how:
            self.later.append((name, times))

    async def carrier(self) -> None:
        """Deliver one of the parcels that are under way."""
        if self.later:
            name, times = self.later.pop(self.dice.randrange(len(self.later)))
            self.events.append(await self.stage.deliver(name, times=times))

    async def kill(self, processes: list[Supervised]) -> None:
        """Kill a process after a while, at whatever it does then."""
        await until(
            lambda: any(each.now.ready for each in processes), within=60, what="a process to be ready"
        )
        victim = self.dice.choice([each for each in processes if each.now.ready])
        await asyncio.sleep(self.dice.uniform(0.2, 2.0))  # the moment is what is random
        await victim.now.kill()


def undone(effects: list[str], words: tuple[str, ...]) -> bool:
    """Whether some of the words happened in order and then all of them were undone in reverse."""
    done = effects[: len(effects) // 2]
    return done == list(words[: len(done)]) and effects[len(done) :] == [
        f"undo {word}" for word in reversed(done)
    ]


def plain(state: str, effects: list[str]) -> bool:
    """Both steps happened."""
    return state == "SUCCEEDED" and effects == ["act", "next"]


def never_twice(state: str, effects: list[str]) -> bool:
    """Both happened, or a person is asked about the first."""
    return plain(state, effects) or (state == "MANUAL_REQUIRED" and effects in ([], ["act"]))


def parcels(state: str, effects: list[str]) -> bool:
    """There, or back again."""
    if state == "SUCCEEDED":
        return effects == ["pay", "send", "close"]
    back: dict[str, list[list[str]]] = {
        "FAILED": [[]],
        "COMPENSATED": [["pay", "repay"], ["pay", "send", "call back", "repay"]],
    }
    return effects in back.get(state, [])


def chained(state: str, effects: list[str]) -> bool:
    """All of it, or none of it."""
    if state == "SUCCEEDED":
        return effects == list(WORDS)
    return undone(effects, WORDS) and state == ("COMPENSATED" if effects else "FAILED")


def blindly(state: str, effects: list[str]) -> bool:
    """All of it, or none of it; the second may be undone without having happened."""
    words = ("first", "second", "third")
    if state == "SUCCEEDED":
        return effects == list(words)
    known = [what.removesuffix(" of a result") for what in effects]
    nobody = "undo second of nobody knows"
    blind = [["first", "second", nobody, "undo first"], ["first", nobody, "undo first"]]
    return (effects in blind or undone(known, words)) and state == ("COMPENSATED" if effects else "FAILED")


MODEL: dict[str, Callable[[str, list[str]], bool]] = {
    "safe": plain,
    "ask": plain,
    "never": never_twice,
    "booked": plain,
    "parcel": parcels,
    "chain": chained,
    "blind": blindly,
}


async def repeatedly(act: Callable[[], Awaitable[None]], times: int) -> None:
    """Do something some times."""
    for _ in range(times):
        await act()


async def check(chaos: Chaos, ended: Counter[str]) -> None:
    """Compare every run's ledger with what its state promises."""
    stage = chaos.stage
    for run, (saga, name) in chaos.runs.items():
        state, effects = await stage.state(run), await stage.effects(run)
        assert MODEL[saga.name](state, effects), (
            f"seed {SEED}: {saga.name}/{name} {state} {effects}\n{await stage.story(run)}"
        )
        if saga.name == "never":
            assert await stage.calls(run, "act") <= 1, "a step that is never repeated was called twice"
    assert ended["SUCCEEDED"] > RUNS / 3, ended
    assert ended["COMPENSATED"] > 0, ended
    assert ended["COMPENSATION_FAILED"] == 0, ended


async def test_random_kills_change_no_outcome(database_url: str, kafka: str, topic_prefix: str) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        chaos = Chaos(stage, random.Random(SEED))
        env = stage.env(LEDGER_WAIT=15, LEDGER_SLOW=0.05, MILEPOST_STEP_CONCURRENCY=8)
        async with supervised(env, *PROCESSES) as processes:
            for process in processes:
                await process.ready(within=90)
            share = RUNS // KILLS
            for k in range(KILLS):
                for n in range(k * share, (k + 1) * share):
                    await chaos.begin(n)
                await asyncio.gather(chaos.kill(processes), repeatedly(chaos.carrier, share // 4))
            while chaos.later:
                await chaos.carrier()
            ended = await stage.resting(list(chaos.runs), within=120 * TIMES)
            assert sum(map(len, processes)) == len(PROCESSES) + KILLS
            noted = "SELECT count(*) FROM effect WHERE what = 'noted'"
            await until(
                lambda: stage.pool.fetchval(f"SELECT ({noted}) >= $1", len(chaos.events)),
                within=60,
                what="the consumer to note every event",
            )
            assert await stage.pool.fetchval(noted) == len(chaos.events), "an event was applied twice"
        await check(chaos, ended)
