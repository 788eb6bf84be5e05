"""Scenario 48 for workers: a stop finishes what it can, hands back what it cannot, and nothing is lost or done twice.

The lease is a minute in these tests: work that another process takes up soon was handed back, not waited for.
"""

from __future__ import annotations

import signal
from uuid import UUID

import pytest

from tests.support.apps.ledger import ask, booked, never, parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import Served, served
from tests.support.waiting import until

REST = "relay,orchestrator,signals,consumers,waker,upkeep"
CALLERS = "worker,compensator"
LONG = {"MILEPOST_LEASE": "60s"}


async def leases(stage: Stage) -> int:
    """Return how many leases of workers hold."""
    query = "SELECT count(*) FROM milepost.worker WHERE service = $1 AND expires_at > milepost.clock()"
    return int(await stage.pool.fetchval(query, stage.prefix))


def stopping(process: Served) -> bool:
    """Whether a process has said that it stops."""
    return any(line.get("event") == "stopping" for line in process.lines)


async def asked_to_stop(process: Served) -> None:
    """SIGTERM it, and wait until it has noticed."""
    process.send(signal.SIGTERM)
    await until(lambda: stopping(process) or process.ended, within=20, what="the process to notice SIGTERM")


async def test_a_step_that_ends_within_the_grace_time_is_finished(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        sagas = {"safe": safe, "ask": ask, "never": never, "booked": booked}
        for name in sagas:
            await stage.fault(name, "act", "after", "hold")
        async with served(stage.env(MILEPOST_GRACE="40s", **LONG), REST, CALLERS) as (_, worker):
            runs = {name: await stage.start(saga, name) for name, saga in sagas.items()}
            for name in sagas:
                await stage.reached(name, "act", "after")
            await asked_to_stop(worker)
            assert not worker.ended
            for name in sagas:
                await stage.release(name, "act", "after")
            assert await worker.wait(within=30) == 0, worker.tail()
            assert await leases(stage) == 0, "the lease ends with its process"
            for name, run in runs.items():
                # It finished what it had begun, and began nothing more.
                assert (await stage.step(run, f"{name}_act"))["state"] == "SUCCEEDED", await stage.story(run)
                assert await stage.effects(run) == ["act"]
                assert (await stage.step(run, f"{name}_next"))["state"] == "PENDING"
            async with served(stage.env(**LONG), CALLERS):
                assert await stage.resting(list(runs.values()), within=40) == {"SUCCEEDED": 4}
        for name, run in runs.items():
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
            assert (await stage.step(run, f"{name}_act"))["attempt"] == 1


async def held(stage: Stage, point: str) -> dict[str, UUID]:
    """Start one run of each kind, all held at a point of their first call."""
    sagas = {"safe": safe, "ask": ask, "never": never, "booked": booked}
    for name in sagas:
        await stage.fault(name, "act", point, "hold")
    runs = {name: await stage.start(saga, name) for name, saga in sagas.items()}
    for name in sagas:
        await stage.reached(name, "act", point)
    return runs


async def taken_up(stage: Stage, runs: dict[str, UUID], point: str) -> None:
    """Let another process go on with what was handed back, and look at what came of it."""
    for name in runs:
        await stage.release(name, "act", point)
    async with served(stage.env(**LONG), CALLERS):
        # Soon: long before a lease of a minute would have ended.
        assert await stage.resting(list(runs.values()), within=40) == {"SUCCEEDED": 3, "MANUAL_REQUIRED": 1}
    happened = ["act"] if point == "after" else []
    assert await stage.state(runs["never"]) == "MANUAL_REQUIRED"
    assert await stage.effects(runs["never"]) == happened
    for name in ("safe", "ask", "booked"):
        assert await stage.effects(runs[name]) == ["act", "next"], await stage.story(runs[name])
    assert "step.unknown" in await stage.history(runs["ask"])
    answers = "SELECT count(*) FROM milepost.reconciliation WHERE run_id = $1 AND decision = $2"
    decision = "MARK_AS_SUCCESS" if point == "after" else "RETRY"
    assert await stage.pool.fetchval(answers, runs["ask"], decision) == 1


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_step_longer_than_the_grace_time_is_handed_back_and_taken_up_at_once(
    database_url: str, kafka: str, topic_prefix: str, point: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        async with served(stage.env(MILEPOST_GRACE="2s", **LONG), REST, CALLERS) as (_, worker):
            runs = await held(stage, point)
            await asked_to_stop(worker)
            assert await worker.wait(within=20) == 0, worker.tail()
            assert await leases(stage) == 0, "the lease ends with its process"
            assert not await stage.pool.fetchval(
                "SELECT count(*) FROM milepost.step WHERE worker IS NOT NULL"
            ), "the dead hold nothing"
            await taken_up(stage, runs, point)


async def test_a_second_signal_ends_the_process_at_once(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        async with served(stage.env(MILEPOST_GRACE="600s", **LONG), REST, CALLERS) as (_, worker):
            runs = await held(stage, "after")
            await asked_to_stop(worker)
            assert not worker.ended
            worker.send(signal.SIGTERM)
            assert await worker.wait(within=20) == 0, worker.tail()
            assert await leases(stage) == 0, "the lease ends with its process"
            await taken_up(stage, runs, "after")


async def test_a_kill_in_the_grace_time_is_settled_when_the_lease_ends(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        async with served(stage.env(MILEPOST_GRACE="600s"), REST, CALLERS) as (_, worker):
            runs = await held(stage, "after")
            await asked_to_stop(worker)
            await worker.kill()
            await taken_up(stage, runs, "after")


async def test_a_stop_during_an_undo_hands_it_back(database_url: str, kafka: str, topic_prefix: str) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        env = stage.env(MILEPOST_GRACE="2s", LEDGER_WAIT=1, **LONG)
        await stage.fault("p", "call back", "after", "hold")
        async with served(env, REST, CALLERS) as (_, worker):
            run = await stage.start(parcel, "p")
            await stage.reached("p", "call back", "after")
            await asked_to_stop(worker)
            assert await worker.wait(within=20) == 0, worker.tail()
            await stage.release("p", "call back", "after")
            async with served(env, CALLERS):
                assert await stage.resting([run], within=40) == {"COMPENSATED": 1}
        assert await stage.effects(run) == ["pay", "send", "call back", "repay"], await stage.story(run)


async def test_a_whole_process_that_stops_while_it_works_loses_nothing(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        env = stage.env(MILEPOST_GRACE="3s", **LONG)
        runs = [await stage.start(saga, f"r-{n}") for n in range(25) for saga in (safe, ask, booked)]
        for stops in range(1, 4):
            async with served(env) as (process,):
                some = "SELECT count(*) >= $1 FROM effect"
                await until(
                    lambda: stage.pool.fetchval(some, 35 * stops),  # noqa: B023
                    within=60,
                    what="it to work",
                )
                assert await process.stop(within=20) == 0, process.tail()
                assert await leases(stage) == 0
        async with served(env):
            assert await stage.resting(runs, within=60) == {"SUCCEEDED": len(runs)}
        for run in runs:
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
