"""Runs that need the same thing, in real processes: their effects never mix, whoever dies and however they end."""

from __future__ import annotations

import asyncio

from tests.support.apps.ledger import last_item
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import Supervised, served, supervising
from tests.support.waiting import until

DONE = ["take", "sell", "record"]


async def by_run(stage: Stage) -> list[tuple[str, list[str]]]:
    """Return the ledger of effects: each stretch of one run's own."""
    stretches: list[tuple[str, list[str]]] = []
    for row in await stage.pool.fetch("SELECT split_part(key, ':', 1) AS run, what FROM effect ORDER BY id"):
        if not stretches or stretches[-1][0] != row["run"]:
            stretches.append((row["run"], []))
        stretches[-1][1].append(row["what"])
    return stretches


async def test_twenty_starters_at_once_are_strictly_one_after_the_other(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        async with served(stage.env(), "relay,orchestrator,waker", "worker,compensator", "worker"):
            runs = await asyncio.gather(*(stage.start(last_item, f"tea-{n}") for n in range(20)))
            assert await stage.resting(runs, within=120) == {"SUCCEEDED": 20}
        assert sorted(await by_run(stage)) == sorted((str(run), DONE) for run in runs)
        assert await stage.pool.fetchval("SELECT count(*) FROM milepost.resource") == 0


async def test_whoever_dies_or_is_undone_hands_on_in_order(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    """Killed right before the lock is given back, in the middle, and while it is being undone."""
    async with staged(database_url, kafka, topic_prefix) as stage:
        for name, what, point in [
            ("tea-0", "record", "after"),
            ("tea-1", "sell", "after"),
            ("tea-2", "put back", "before"),
        ]:
            await stage.fault(name, what, point, "kill")
        await stage.fault("tea-2", "record", "before", "refuse")
        await stage.fault("tea-3", "take", "before", "refuse")
        runs = [await stage.start(last_item, f"tea-{n}") for n in range(5)]
        process = Supervised(stage.env(MILEPOST_STEP_CONCURRENCY=1, MILEPOST_LEASE="2s"))
        async with supervising([process]):
            ended = await stage.resting(runs, within=180)
        assert ended == {"SUCCEEDED": 3, "COMPENSATED": 1, "FAILED": 1}
        assert await stage.faults_left() == 0 and len(process) == 4, "each kill ended a process"
        undone = ["take", "sell", "take back", "put back"]
        assert await by_run(stage) == [
            (str(runs[0]), DONE),
            (str(runs[1]), DONE),
            (str(runs[2]), undone),
            (str(runs[4]), DONE),
        ], "in the order in which they came; the fourth did nothing"


async def test_a_grant_that_nobody_hears_of_is_found(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    """The message is taken out of the outbox before it leaves, as if the topic had lost it."""
    async with staged(database_url, kafka, topic_prefix) as stage:
        runs = [await stage.start(last_item, f"tea-{n}") for n in range(2)]
        await stage.fault("tea-0", "sell", "before", "hold")
        async with served(stage.env(), "relay,orchestrator,waker,worker"):
            await stage.reached("tea-0", "sell", "before")
            await stage.pool.execute(
                "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
            )
            await stage.pool.execute(
                "CREATE TRIGGER lose BEFORE INSERT ON milepost.outbox FOR EACH ROW "
                f"WHEN (NEW.topic = '{topic_prefix}.runs') EXECUTE FUNCTION lose()"
            )
            await stage.release("tea-0", "sell", "before")
            query = "SELECT run_id FROM milepost.resource"

            async def handed_on() -> bool:
                return bool(await stage.pool.fetchval(query) == runs[1])

            await until(handed_on, within=60, what="the lock to be handed on")
            assert await stage.resting(runs, within=60) == {"SUCCEEDED": 2}
        assert [what for _, what in await by_run(stage)] == [DONE, DONE]
