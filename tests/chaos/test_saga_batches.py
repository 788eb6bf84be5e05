"""A process dies in the middle of a transaction that changes many runs: none of their steps is lost or done twice."""

from __future__ import annotations

from tests.support.apps.ledger import ask, safe
from tests.support.apps.ledger_stage import staged
from tests.support.process import Supervised, supervising

RUNS = 20


async def test_a_kill_in_a_batch_never_loses_or_repeats_an_effect(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        for point in ("before", "after"):
            await stage.fault("batch", "store", point, "kill", times=2)
        runs = [await stage.start(saga, f"{saga.name}-{n}") for n in range(RUNS) for saga in (safe, ask)]
        env = stage.env(
            MILEPOST_APP="tests.support.apps.ledger_dying:service",
            MILEPOST_STEP_CONCURRENCY=16,
            MILEPOST_LEASE="2s",
        )
        process = Supervised(env)
        async with supervising([process]):
            ended = await stage.resting(runs, within=180)
        assert await stage.faults_left() == 0, "a fault did not happen"
        # Two batches at once are met by two faults, and the process dies of both.
        assert 3 <= len(process) <= 5, "four kills, and each ended a process"
        assert ended == {"SUCCEEDED": len(runs)}
        for run in runs:
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
            history = await stage.history(run)
            assert history.count("run.completed") == 1, await stage.story(run)
            assert history.count("step.completed") + history.count("step.settled") >= 2, await stage.story(
                run
            )
        gaps = await stage.pool.fetchval(
            "SELECT count(*) FROM milepost.run AS r WHERE history_n <>"
            " (SELECT count(*) FROM milepost.history AS h WHERE h.run_id = r.id)"
        )
        assert gaps == 0, "what was decided is what is told"
