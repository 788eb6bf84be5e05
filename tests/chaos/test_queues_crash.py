"""Processes that die by SIGKILL under a rate limit, or having spent: never too many calls, and nothing is forgotten."""

from __future__ import annotations

from tests.support.apps.queues_service import CALLS, agent, payment
from tests.support.queues import running, shop

MANY = 25


async def test_a_rate_holds_over_the_death_of_a_process(database_url: str, kafka: str) -> None:
    async with shop(database_url, kafka) as it:
        for n in range(MANY):
            await it.start(payment, f"pay-{n}")
        dies = it.process(roles="worker,compensator")
        async with running(it.process(), dies):
            await it.begun("pay-%", CALLS + 1)
            await dies.kill()
            async with running(it.process(roles="worker,compensator")):
                await it.all_are("SUCCEEDED", within=120)
        await it.rate_held()
        paid = {run for run, what in await it.effects() if what == "pay"}
        assert paid == {f"pay-{n}" for n in range(MANY)}


async def test_what_a_try_had_spent_counts_after_the_death_of_its_process(
    database_url: str, kafka: str
) -> None:
    async with shop(database_url, kafka) as it:
        dies = it.process()
        async with running(dies):
            run = await it.start(agent, "a", held=True)

            query = "SELECT count(*) = 2 FROM effect WHERE what = 'spent'"
            await it.turns_true(query)
            await dies.kill()
            async with running(it.process()):
                said = await it.stands(run, "MANUAL_REQUIRED")
        assert said == "the run's budget left tokens 400, and this try has spent tokens 600"
        spent = {"attempts": "2", "steps": "1", "tokens": "1200", "cost": "0.40", "tool_calls": "4"}
        assert await it.spent(run, "think") == spent
