"""A process of two dies by SIGKILL while a rate limit holds both back: never too many calls, and none is lost."""

from __future__ import annotations

from tests.support.apps.queues_service import CALLS, payment
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
