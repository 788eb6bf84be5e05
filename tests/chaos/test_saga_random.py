"""Processes are killed at random moments while runs of every kind are under way; the ledger is right all the same.

Sequences, drawn nested flows with commands, waits and rounds, families and crowds of runs, and approvals.
MILEPOST_CHAOS=long takes 2,000 runs and 200 kills; MILEPOST_CHAOS_SEED repeats one order of events.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.apps.ledger_stage import Stage, staged
from tests.support.apps.random_service import EVERY
from tests.support.nested_read import read
from tests.support.person import person
from tests.support.process import Supervised, supervised
from tests.support.random_actors import QUESTIONS, Actors, acting
from tests.support.random_kinds import MODEL, NESTED, certain, check_crowd, check_family
from tests.support.waiting import until

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
SEED = int(os.environ.get("MILEPOST_CHAOS_SEED", "20240229"))
RUNS, KILLS = (2_000, 200) if LONG else (80, 10)
PROCESSES = (
    "relay",
    "relay,orchestrator,waker",
    "worker,compensator",
    "worker,compensator",
    "orchestrator,signals,consumers,waker,upkeep",
)


async def kill(processes: list[Supervised], dice: random.Random) -> None:
    """Kill a process after a while, at whatever it does then; most of them are at work."""
    most = len(processes) // 2 + 1
    await until(
        lambda: sum(each.now.ready for each in processes) >= most,
        within=300,
        what="most processes to be ready",
    )
    victim = dice.choice([each for each in processes if each.now.ready])
    await asyncio.sleep(dice.uniform(0.2, 2.0))  # the moment is what is random
    await victim.now.kill()


async def check(stage: Stage, actors: Actors) -> None:
    """Compare every run's ledger with what its state promises."""
    wrong: list[str] = []
    for run, (saga, name) in actors.runs.items():
        state, effects = await stage.state(run), await stage.effects(run)
        try:
            if saga in NESTED:
                (await read(stage, run, NESTED[saga][0])).check()
            elif saga == "family":
                await check_family(stage, run, name)
            elif saga == "crowd":
                await check_crowd(stage, run, name)
            else:
                assert MODEL[saga](state, await certain(stage, run))
            if saga == "never":
                assert await stage.calls(run, "act") <= 1, "a step that is never repeated was called twice"
        except AssertionError as error:
            wrong.append(f"{saga}/{name} {state} {effects}: {error}\n{await stage.story(run)}")
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(actors.runs)} runs:\n" + "\n\n".join(wrong[:5])


def check_mix(ended: Counter[str]) -> None:
    """Enough of each end came about for the rest to mean something."""
    assert ended["SUCCEEDED"] > RUNS / 4, ended
    assert ended["COMPENSATED"] > RUNS / 20, ended
    assert ended["COMPENSATION_FAILED"] == 0, ended


async def check_notes(stage: Stage, events: int) -> None:
    """The consumer has noted every delivery, once."""
    noted = "SELECT count(*) FROM effect WHERE what = 'noted'"
    await until(
        lambda: stage.pool.fetchval(f"SELECT ({noted}) >= $1", events),
        within=60,
        what="the consumer to note every event",
    )
    assert await stage.pool.fetchval(noted) == events, "an event was applied twice"


async def answered(stage: Stage) -> bool:
    """Whether nobody is asked anything."""
    return await stage.pool.fetchrow(QUESTIONS) is None


async def test_random_kills_change_no_outcome(
    database_url: str,
    kafka: str,
    topic_prefix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    dice = random.Random(SEED)
    ann = person(database_url, capsys, monkeypatch, tmp_path)
    async with staged(database_url, kafka, topic_prefix, *EVERY) as stage:
        env = stage.env(LEDGER_WAIT=15, LEDGER_SLOW=0.05, MILEPOST_STEP_CONCURRENCY=8)
        env["MILEPOST_APP"] = "tests.support.apps.random_service:service"
        async with supervised(env, *PROCESSES) as processes:
            for process in processes:
                await process.ready(within=90)
            async with acting(stage, dice, ann) as actors:
                share = RUNS // KILLS
                for k in range(KILLS):
                    for n in range(k * share, (k + 1) * share):
                        await actors.begin(n)
                    await kill(processes, dice)
                await actors.bring_the_rest()
                within = 1200 if LONG else 120
                ended = await stage.resting(await actors.every_run(), within=within)
                # A run that is asked about rests, and goes on when somebody has answered.
                while not await answered(stage):
                    await until(lambda: answered(stage), within=within, what="an answer to every question")
                    ended = await stage.resting(await actors.every_run(), within=within)
            assert sum(map(len, processes)) == len(PROCESSES) + KILLS
            await check_notes(stage, actors.deliveries)
        record_property("ended", dict(ended))
        await check(stage, actors)
        check_mix(ended)
