"""Budgets with `milepost serve` and the command line as a user runs them."""

from __future__ import annotations

from tests.support import servers
from tests.support.apps.queues_service import agent, slow
from tests.support.queues import running, shop


async def test_who_spends_too_much_waits_for_a_person_who_grants_more(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it, running(it.process()):
        run = await it.start(agent, "a")
        said = await it.stands(run, "MANUAL_REQUIRED")
        assert said == "the run's budget left tokens 1000, and this try has spent tokens 1200"
        one = {"attempts": "1", "steps": "1", "tokens": "1200", "cost": "0.40", "tool_calls": "4"}
        assert await it.spent(run, "think") == one, "also of the try that was stopped"
        assert await it.pool.fetchval("SELECT code FROM milepost.run") == "BUDGET_EXCEEDED"
        told = await it.milepost("runs", "retry", "agent/a", "think", "--reason", "look")
        assert (told[0], "MP615" in told[1], "tokens 1200" in told[1]) == (3, True, True), told
        wrong = await it.milepost(
            "runs", "retry", "agent/a", "think", "--budget", "tokens=-5", "--reason", "look"
        )
        assert (wrong[0], "MP635" in wrong[1]) == (2, True), wrong
        grant = ("--budget", "tokens=2000", "--budget", "runtime=5m")
        told = await it.milepost("runs", "retry", "agent/a", "think", *grant, "--reason", "worth it")
        assert told[0] == 0, told
        await it.stands(run, "SUCCEEDED")
        assert (await it.spent(run, "think"))["tokens"] == "2400"
        effects = [what for _, what in await it.effects()]
        begun = ["think with 1000", *["spent"] * 3, "think with 1800", *["spent"] * 4, "write"]
        assert effects == begun
        query = (
            "SELECT actor, reason, evidence ->> 'budget', outcome FROM milepost.audit WHERE act = 'run.retry'"
            " ORDER BY at, id"
        )
        assert [tuple(row) for row in await it.pool.fetch(query)] == [
            ("ann", "look", None, "REFUSED"),
            ("ann", "worth it", '{"tokens": "2000", "runtime": "300.0"}', "DONE"),
        ]


async def test_a_try_that_has_no_time_left_is_ended(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it, running(it.process()):
        run = await it.start(slow, "s")
        assert await it.stands(run, "MANUAL_REQUIRED") == "the step's budget left 1 s"
        row = await it.pool.fetchrow("SELECT code, doubt, attempt FROM milepost.step")
        assert row is not None
        assert tuple(row) == ("BUDGET_EXCEEDED", True, 1), "it may have taken effect"
