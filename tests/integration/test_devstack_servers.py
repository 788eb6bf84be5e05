"""What a server keeps when it is stopped, killed or frozen, and that it comes back where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import asyncpg
import pytest
from milepost.devstack.kafka import Kafka
from milepost.devstack.ports import listens, run_apart, wait_until
from milepost.devstack.postgres import Postgres
from milepost.devstack.probe import groups_work

from tests.support.talk import execute, first, make_topic, send

pytestmark = pytest.mark.usefixtures("devstack_data")


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_broker_keeps_its_topics(ending: str, topic_prefix: str) -> None:
    with Kafka() as server:
        bootstrap = server.bootstrap
        run_apart(lambda: make_topic(bootstrap, topic_prefix))
        run_apart(lambda: send(bootstrap, topic_prefix, b"kept"))
        getattr(server, ending)()
        assert not server.alive()
        server.start()
        assert server.bootstrap == bootstrap
        assert run_apart(lambda: first(bootstrap, topic_prefix)) == b"kept"


def test_a_frozen_broker_stops_answering_until_thawed() -> None:
    with Kafka() as server:
        server.freeze()
        assert not run_apart(lambda: groups_work(server.bootstrap, seconds=1))
        assert server.alive()
        server.thaw()
        assert wait_until(lambda: run_apart(lambda: groups_work(server.bootstrap)), seconds=30)
        server.freeze()
    assert not listens(server.port)


@pytest.mark.parametrize("ending", ["kill", "stop", "immediate"])
async def test_a_database_keeps_what_was_committed(ending: str) -> None:
    with Postgres() as server:
        url = server.create_database("copied", server.create_database("first").rpartition("/")[2])
        await execute(url, "CREATE TABLE kept (x int)", "INSERT INTO kept VALUES (7)")
        busy = await asyncpg.connect(url)
        work = asyncio.create_task(busy.fetchval("SELECT pg_sleep(600)"))
        running_query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
        while await execute(url, running_query) != 1:
            await asyncio.sleep(0)
        at_once = partial(server.stop, "immediate")
        end: dict[str, Callable[[], None]] = {"kill": server.kill, "stop": server.stop, "immediate": at_once}
        await asyncio.to_thread(end[ending])
        assert not server.alive()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await work
        await asyncio.to_thread(server.start)
        assert server.url("copied") == url
        assert await execute(url, "SELECT x FROM kept") == 7
        assert await execute(url, "SELECT current_setting('fsync')") == "on"
