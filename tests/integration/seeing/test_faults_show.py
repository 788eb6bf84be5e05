"""A fault that is made on purpose is in a metric, on the worklist and in `milepost doctor` within ten seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest
from milepost import Milepost
from milepost.console.views.worklist import worklist
from milepost.devstack.ports import free_port
from milepost.recovery.permissions import Scope
from milepost.streams.measures import CATALOG

from tests.support.apps.seen_service import Order, order
from tests.support.badhttp import unread
from tests.support.engine import settings_for
from tests.support.process import Served
from tests.support.seeing import Watch, scraped, value
from tests.support.waiting import until

WITHIN = 10.0


@dataclass
class Stage:
    """A service whose roles are in processes of their own, so that each can be ended alone."""

    name: str
    url: str
    kafka: str
    env: dict[str, str]
    watch: Watch
    relay: Served
    worker: Served
    books: Served
    pool: asyncpg.Pool[asyncpg.Record]

    async def start(self, key: str, *, lost: bool = False) -> None:
        """Start a run, as an application without any role does; lost: what announces its step never arrives."""
        settings = settings_for(self.url, nudge=timedelta(minutes=2))  # after which it would mend itself
        service = Milepost(self.name, sagas=[order], settings=settings)
        async with self.pool.acquire() as connection, connection.transaction():
            await service.start(connection, order, Order(id=key))
            if lost:
                await connection.execute("DELETE FROM milepost.outbox WHERE xid = pg_current_xact_id()")

    async def tell(self, id: str) -> None:
        """Publish an event that the service's consumer reads."""
        event = "SELECT milepost.publish($1, 'seen.heard', jsonb_build_object('id', $2::text), $2)"
        await self.pool.execute(event, f"{self.name}.heard", id)

    async def heard(self) -> int:
        """Return how far the consumer has come."""
        found: int | None = await self.pool.fetchval(
            "SELECT sum(next_offset) FROM milepost.consumer_position"
        )
        return found or 0


@asynccontextmanager
async def staged(url: str, kafka: str, name: str, provider: str) -> AsyncIterator[Stage]:
    address = f"127.0.0.1:{free_port()}"
    env = {
        "MILEPOST_APP": "tests.support.apps.seen_service:service",
        "MILEPOST_DATABASE_URL": url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_CREATE_TOPICS": "true",
        "MILEPOST_NUDGE": "2m",
        "SEEN": name,
        "PROVIDER": provider,
    }
    watcher = Served({**env, "MILEPOST_METRICS": address}, "orchestrator,waker")
    relay, worker, books = Served(env, "relay"), Served(env, "worker"), Served(env, "consumers")
    async with AsyncExitStack() as stack:
        for process in (watcher, relay, worker, books):
            stack.push_async_callback(_end, process)
        pool = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1, max_size=2))
        await watcher.start()
        await asyncio.gather(relay.start(), books.start(), worker.start())
        yield Stage(name, url, kafka, env, Watch(url, address, env), relay, worker, books, pool)


async def _end(process: Served) -> None:
    if process.process is not None and not process.ended:
        await process.kill()


async def test_faults_show_within_ten_seconds(
    database_url: str, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    async with unread() as provider, staged(database_url, kafka, topic_prefix, provider) as stage:
        watch = stage.watch
        # The message that announces a step is lost; a worker that would have had it is there.
        await stage.start("lost", lost=True)
        await watch.shows("step_pending", loop.time(), within=WITHIN)

        # The other side takes the call and says nothing.
        await stage.start("silent")
        running = "SELECT count(*) FROM milepost.step WHERE state = 'RUNNING'"
        await until(lambda: stage.pool.fetchval(running), what="the call")
        await watch.shows("step_running", loop.time(), within=WITHIN)

        # The only process that reads events is gone, so nobody is left to tell that one waits.
        await stage.tell("first")
        await until(stage.heard, within=20, what="the first event applied")
        await stage.books.kill()
        alone = loop.time()
        await stage.tell("second")
        await asyncio.gather(
            watch.doctor_says("MP754", alone, within=WITHIN), watch.shows("consumer", alone, within=WITHIN)
        )

        # The worker dies with the call, and the relay with it; what is committed then does not leave.
        died = loop.time()
        await asyncio.gather(stage.worker.kill(), stage.relay.kill())
        await stage.start("unsent")
        await asyncio.gather(
            watch.shows("worker", died, within=WITHIN), watch.shows("outbox", died, within=WITHIN)
        )

        # The console's page has them too, and what it says of all tenants only for whoever may see all.
        async with stage.pool.acquire() as proxy:
            connection = cast("asyncpg.Connection[Any]", proxy)
            page = await worklist(connection, Scope(), group="troubles")
            narrow = await worklist(connection, Scope(tenants=frozenset({"acme"})), group="troubles")
        assert {"worker", "consumer", "outbox", "step_pending", "step_running"} <= {
            row.code for row in page.rows
        }
        assert {row.code for row in narrow.rows} == {"worker", "consumer", "outbox"}
        assert {row.runbook for row in page.rows if row.code == "consumer"} == {"worker_lost"}
        assert all(row.run_id is not None and row.urgency == "CRITICAL" for row in page.rows if row.saga)

        # Everything else goes on being told; and no more than is written down.
        samples = await scraped(watch.address)
        assert value(samples, "milepost_database_up") == 1
        assert (value(samples, "milepost_live_rows", what="outbox") or 0) >= 1
        assert value(samples, "milepost_live_age_seconds", what="step_running", severity="CRITICAL")
        assert value(samples, "milepost_runs_live", saga="order") == 3, [
            s for s in samples if s.name == "milepost_runs_live"
        ]
        assert value(samples, "milepost_part_well", part="orchestrator") == 1
        known = {metric.exposed for metric in CATALOG}
        told = {
            sample.name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            for sample in samples
            if sample.name.startswith("milepost_")
        }
        assert told <= known
