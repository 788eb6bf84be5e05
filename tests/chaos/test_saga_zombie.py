"""Interleaving 1: a worker freezes in a step that cannot dedupe, its lease ends, others settle it, then it thaws."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from uuid import UUID

import psutil

from tests.support.apps.ledger import ask, chain
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import Served, served
from tests.support.waiting import until

CALLERS = "worker,compensator"
REST = "relay,orchestrator,signals,consumers,waker,upkeep"


def frozen(process: Served) -> bool:
    """Whether the process is stopped by a signal."""
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


async def freezes(workers: list[Served]) -> Served:
    """Wait until one of the workers has frozen itself, and return it."""
    await until(lambda: any(frozen(worker) for worker in workers), within=60, what="a worker to freeze")
    return next(worker for worker in workers if frozen(worker))


async def decisions(stage: Stage, run: UUID) -> list[tuple[str, str]]:
    """Return what each probe answered and what came of it."""
    query = "SELECT evidence, decision FROM milepost.reconciliation WHERE run_id = $1 ORDER BY at"
    rows = await stage.pool.fetch(query, run)
    return [(json.loads(row["evidence"])["answer"], row["decision"]) for row in rows]


async def late(stage: Stage, run: UUID) -> int:
    """Return how many late results are kept as evidence."""
    return (await stage.history(run)).count("step.late_result")


async def test_a_worker_that_thaws_before_its_call_does_not_call(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("z", "act", "before", "freeze")
        async with served(stage.env(), REST, "worker", "worker") as (_, *workers):
            run = await stage.start(ask, "z")
            zombie = await freezes(workers)
            assert await stage.resting([run], within=90) == {"SUCCEEDED": 1}
            before = dict(await stage.step(run, "ask_act"))
            zombie.send(signal.SIGCONT)
            # It lives again, and serves again under a new lease.
            alive = (
                "SELECT count(*) FROM milepost.worker WHERE service = $1 AND expires_at > milepost.clock()"
            )
            await until(
                lambda: stage.pool.fetchval(f"SELECT ({alive}) >= 2", stage.prefix),
                within=30,
                what="the thawed worker to take a lease",
            )
        assert dict(await stage.step(run, "ask_act")) == before, "the late worker changed the row"
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        assert await stage.calls(run, "act") == 1
        lost = "SELECT count(*) FROM milepost.history WHERE run_id = $1 AND data ->> 'code' = 'WORKER_LOST'"
        assert await stage.pool.fetchval(lost, run), "nothing tells that the worker was lost"
        answers = await decisions(stage, run)
        assert answers[-1] == ("absent", "RETRY")
        assert set(answers[:-1]) <= {("absent", "NONE")}
        # Two seconds at least until the lease of three has ended, and one to settle.
        waited = (
            "SELECT (SELECT at FROM milepost.reconciliation WHERE run_id = $1 AND decision = 'RETRY') - min(at) "
            "FROM milepost.history WHERE run_id = $1 AND event = 'step.started'"
        )
        assert await stage.pool.fetchval(waited, run) >= timedelta(seconds=3), await stage.story(run)


async def test_a_late_answer_after_the_effect_is_evidence_only(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("z", "act", "after", "freeze")
        async with served(stage.env(), REST, "worker", "worker") as (_, *workers):
            run = await stage.start(ask, "z")
            zombie = await freezes(workers)
            assert await stage.resting([run], within=90) == {"SUCCEEDED": 1}
            before = dict(await stage.step(run, "ask_act"))
            zombie.send(signal.SIGCONT)
            await until(lambda: late(stage, run), within=30, what="evidence of the late worker")
        assert dict(await stage.step(run, "ask_act")) == before, "the late worker changed the row"
        assert await decisions(stage, run) == [("found", "MARK_AS_SUCCESS")]
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        assert await stage.calls(run, "act") == 1


async def request_in_flight(stage: Stage, settle: float) -> list[str]:
    """Freeze a worker whose request has left it, thaw it once a probe has found nothing; return the effects."""
    await stage.fault("z", "act", "sending", "freeze")
    async with served(stage.env(LEDGER_SETTLE=settle), REST, "worker", "worker") as (_, *workers):
        run = await stage.start(ask, "z")
        zombie = await freezes(workers)
        await until(lambda: decisions(stage, run), within=60, what="a probe to answer")
        if settle < 1:
            await until(lambda: stage.calls(run, "act"), within=60, what="the other worker's call")
        zombie.send(signal.SIGCONT)
        assert await stage.resting([run], within=90) == {"SUCCEEDED": 1}
        await until(lambda: late(stage, run), within=30, what="evidence of the late worker")
        told = "SELECT data ->> 'code' FROM milepost.history WHERE run_id = $1 AND event = 'step.late_result'"
        assert await stage.pool.fetchval(told, run) in {"WORKER_LOST", None}, "it was not stopped by anybody"
        return await stage.effects(run)


async def test_a_request_in_flight_lands_within_the_settling_time(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        assert await request_in_flight(stage, settle=15) == ["act", "next"]


async def test_without_a_settling_time_a_request_in_flight_is_repeated(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    """The control: what the settling time is for."""
    async with staged(database_url, kafka, topic_prefix) as stage:
        effects = await request_in_flight(stage, settle=0.001)
        assert effects.count("act") == 2


async def test_a_late_success_does_not_restart_a_run_that_was_undone(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("z", "three", "after", "freeze")
        async with served(stage.env(), REST, CALLERS, CALLERS) as (_, *workers):
            run = await stage.start(chain, "z")
            zombie = await freezes(workers)
            # The second and last try fails; the step is settled by repeating it, and undone.
            await stage.fault("z", "three", "before", "raise")
            assert await stage.resting([run], within=90) == {"COMPENSATED": 1}
            before = await stage.effects(run)
            zombie.send(signal.SIGCONT)
            await until(lambda: late(stage, run), within=30, what="evidence of the late worker")
        assert await stage.state(run) == "COMPENSATED"
        words = ["one", "two", "three"]
        assert before == words + [f"undo {word}" for word in reversed(words)], await stage.story(run)
        assert await stage.effects(run) == before
