"""Long work on workers of its own: two processes, each serves one queue."""

from __future__ import annotations

from tests.support import servers
from tests.support.apps.queues_service import job, report
from tests.support.queues import running, shop

MANY = 12


async def test_long_work_has_its_own_process_and_short_work_does_not_feel_it(
    database_url: str, kafka_server: servers.MessageServer
) -> None:
    async with shop(database_url, kafka_server.bootstrap) as it:
        short = it.process(queues="default", MILEPOST_STEP_CONCURRENCY=2)
        only = {"roles": "worker,compensator", "queues": "long"}
        long = it.process(**only, MILEPOST_QUEUE_CONCURRENCY="long=3")
        async with running(short, long):
            reports = [f"report-{n}" for n in range(MANY)]
            for name in reports:
                await it.start(report, name, held=True)
            await it.begun("report-%", 3)
            for n in range(MANY):
                await it.start(job, f"job-{n}")
            for n in range(MANY):
                await it.has(f"job-{n}", "second done")
            assert len(await it.effects("report-%")) == 3, "the queue's own number, and nothing has ended"
            await it.ran_in("job-%", short)
            # The process of the long work dies; the short work goes on, and another process takes the long work up.
            await long.kill()
            await it.start(job, "job-after")
            await it.has("job-after", "second done")
            await it.go(*reports)
            again = it.process(**only, MILEPOST_QUEUE_CONCURRENCY="long=3")
            async with running(again):
                await it.all_are("SUCCEEDED")
        await it.ran_in("job-%", short)
        await it.ran_in("report-%", long, again)
        done = [run for run, what in await it.effects("report-%") if what == "crunch done"]
        assert sorted(done) == sorted(reports), "each once"
