"""A rate limit over two processes, with `milepost serve` as a user runs it; the bank's ledger is the witness."""

from __future__ import annotations

from datetime import timedelta

from milepost import Priority

from tests.support import servers
from tests.support.apps.queues_service import CALLS, PER, job, payment
from tests.support.queues import running, shop

MANY = 18


async def test_two_processes_keep_one_rate_and_no_slot_waits(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it:
        for n in range(MANY):
            await it.start(payment, f"pay-{n}", priority=Priority.LOW)
        here = it.process(MILEPOST_STEP_CONCURRENCY=1)
        there = it.process(roles="worker,compensator", MILEPOST_STEP_CONCURRENCY=1)
        async with running(here, there):
            await it.begun("pay-%", CALLS)
            await it.start(job, "plain", priority=Priority.LOW)
            await it.has("plain", "second done", within=PER.total_seconds())
            await it.start(payment, "urgent", priority=Priority.HIGH)
            await it.all_are("SUCCEEDED")
        await it.rate_held()
        paid = [run for run, what in await it.effects() if what == "pay"]
        assert sorted(paid) == sorted([*(f"pay-{n}" for n in range(MANY)), "urgent"]), "each once"
        assert paid.index("urgent") < MANY - CALLS, "before those of LOW that were waiting"
        tries = await it.pool.fetch("SELECT DISTINCT attempt FROM milepost.step")
        assert [row["attempt"] for row in tries] == [1], "to wait is no try"
        told = await it.pool.fetchval(
            "SELECT count(*) FROM milepost.history WHERE event = 'step.rate_limited'"
        )
        assert MANY - CALLS <= told <= 3 * MANY, "nobody asks again and again"


async def test_who_asks_to_be_left_alone_is_left_alone_by_all(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it:
        await it.start(payment, "refused", held=True)
        async with running(it.process()):
            await it.has("refused", "pay")
            query = "SELECT closed_until IS NOT NULL FROM milepost.rate_limit"
            await it.turns_true(query)
            await it.start(payment, "other")
            await it.all_are("SUCCEEDED")
        rows = await it.pool.fetch("SELECT run, at FROM effect WHERE what = 'pay' ORDER BY id")
        first, *rest = rows
        assert {row["run"] for row in rest} == {"refused", "other"}
        assert all(row["at"] - first["at"] >= timedelta(seconds=3.9) for row in rest)
