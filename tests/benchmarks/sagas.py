"""S1 to S4: what a step of a saga costs.

S1: `milepost serve` with all roles, 64 runs of five steps in flight: started one a transaction by another process, and
seen to its end by looking at its row; beside dbos, which awaits as many such flows in one process. S2: a worker
with 64 slots that is handed its messages from memory, changes together and one by one. S3: five commands to a
participant instead, and its replies, over Kafka both ways. S4: one run after another, from before its start to when
its end is seen.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from milepost import Milepost, Saga
from milepost.consumers import grouping
from milepost.schemas.messages import WorkMessage

from tests.support.engine import settings_for
from tests.support.process import Served, served
from tests.support.workers import worker_on

from .flows import SAGAS, STEPS, Order, local, remote
from .harness import IDS, Bench, as_served, cpu_seconds, environment, percentile, server_seconds
from .peers import HERE, installed, version

IN_FLIGHT = 64
OPEN = "SELECT id FROM milepost.run WHERE id = ANY ($1::uuid[]) AND finished_at IS NOT NULL"
ENDED = "SELECT finished_at IS NOT NULL FROM milepost.run WHERE id = $1"


def service_on(url: str) -> Milepost:
    """The service of flows.py, as a process that starts runs has it."""
    return Milepost("flows", sagas=SAGAS, settings=settings_for(url))


@dataclass
class Driver:
    """Starts runs and sees their ends.

    Attributes:
        pool: Connections of its own.
        process: The `milepost serve` that works.
    """

    service: Milepost
    pool: asyncpg.Pool[Any]
    process: Served

    async def start(self, saga: Saga[Order]) -> UUID:
        """Start a run in a transaction of its own."""
        async with self.pool.acquire() as connection, connection.transaction():
            return (await self.service.start(connection, saga, Order(id=str(IDS.new())))).id

    async def many(self, saga: Saga[Order], count: int) -> float:
        """Seconds of so many runs, 64 at a time, each started when one before it has been seen to end."""
        open_runs: dict[UUID, asyncio.Event] = {}
        numbers, began = iter(range(count)), time.perf_counter()

        async def one_after_another() -> None:
            for _ in numbers:
                run = await self.start(saga)
                open_runs[run] = asyncio.Event()
                await open_runs[run].wait()

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.01)
                for row in await self.pool.fetch(OPEN, list(open_runs)):
                    open_runs.pop(row["id"]).set()

        watching = asyncio.create_task(watch())
        try:
            async with asyncio.timeout(300):
                await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
        finally:
            watching.cancel()
        return time.perf_counter() - began

    async def alone(self, saga: Saga[Order], count: int) -> list[float]:
        """Milliseconds of each of so many runs, one after the other."""
        took = []
        async with self.pool.acquire() as connection:
            for _ in range(count):
                began = time.perf_counter()
                run = await self.start(saga)
                while not await connection.fetchval(ENDED, run):
                    await asyncio.sleep(0.0005)
                took.append((time.perf_counter() - began) * 1000)
        return took


@asynccontextmanager
async def working(url: str, kafka: str) -> AsyncIterator[Driver]:
    """Run `milepost serve` with all roles and 64 slots a queue."""
    env = environment(
        url,
        kafka,
        MILEPOST_APP="tests.benchmarks.flows:service",
        MILEPOST_CREATE_TOPICS="true",
        MILEPOST_STEP_CONCURRENCY=str(IN_FLIGHT),
        MILEPOST_LEASE="30s",
    )
    async with (
        served(env, ready=90.0) as (process,),
        asyncpg.create_pool(url, min_size=10, max_size=10) as pool,
    ):
        yield Driver(service_on(url), pool, process)
        await process.stop()


class Dbos:
    """A process of dbos."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, line: str) -> Any:
        """Send a line, and return what it is answered by."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 300))


@asynccontextmanager
async def dbos(url: str) -> AsyncIterator[Dbos]:
    """Run dbos on a database of its own on the same server."""
    command = [str(installed()), str(HERE / "dbos_flow.py"), url]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 90)
        assert line.strip() == b"ready", f"dbos did not start: {line!r}"
        yield Dbos(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let each change have a transaction of its own, as many at once as the pool has connections."""
    before = grouping.MOST, grouping.RUNNERS
    grouping.MOST, grouping.RUNNERS = 1, 10
    try:
        yield
    finally:
        grouping.MOST, grouping.RUNNERS = before


async def by_hand(bench: Bench, url: str, count: int, name: str) -> float:
    """Steps a second of a worker that is handed its messages from memory; notes what they cost the processors."""
    connection, service = await asyncpg.connect(url), service_on(url)
    try:
        async with connection.transaction():
            runs = [
                (await service.start(connection, local, Order(id=str(IDS.new())))).id for _ in range(count)
            ]
        await connection.execute("CHECKPOINT")
        async with worker_on(url, service, slots=IN_FLIGHT) as hand:
            waiting = iter(runs)

            async def feed() -> None:
                for run in waiting:
                    await hand.worker.take(WorkMessage(run=run, saga="local", definition=1, step="s0"))

            used, own, began = server_seconds(bench.server_pid), time.process_time(), time.perf_counter()
            with as_served():
                await asyncio.gather(*(feed() for _ in range(IN_FLIGHT)))
                while hand.worker.busy:
                    await asyncio.sleep(0.002)
            took, own = time.perf_counter() - began, time.process_time() - own
            used = server_seconds(bench.server_pid) - used
        ended = await connection.fetchval(
            "SELECT count(*) FROM milepost.run WHERE id = ANY ($1) AND state = 'SUCCEEDED'", runs
        )
        assert ended == count, f"{ended} of {count} runs ended"
    finally:
        await connection.close()
    bench.rate(f"{name}, CPU ms a step", (own + used) * 1000 / (count * STEPS))
    return bench.rate(f"{name}, steps/s", count * STEPS / took)


async def served_rate(bench: Bench, driver: Driver, saga: Saga[Order], count: int, name: str) -> float:
    """Steps a second of a real process; notes what they cost it and PostgreSQL."""
    assert driver.process.process is not None
    pid = driver.process.process.pid
    used = cpu_seconds(pid) + server_seconds(bench.server_pid)
    took = await driver.many(saga, count)
    used = cpu_seconds(pid) + server_seconds(bench.server_pid) - used
    bench.rate(f"{name}, CPU ms a step", used * 1000 / (count * STEPS))
    return bench.rate(f"{name}, steps/s", count * STEPS / took)


async def dbos_rate(bench: Bench, peer: Dbos, count: int) -> float:
    """Steps a second of dbos; notes what they cost it and PostgreSQL."""
    used = cpu_seconds(peer.process.pid) + server_seconds(bench.server_pid)
    took = await peer.ask(f"many {count} {IN_FLIGHT}")
    used = cpu_seconds(peer.process.pid) + server_seconds(bench.server_pid) - used
    bench.rate("dbos, CPU ms a step", used * 1000 / (count * STEPS))
    return bench.rate("dbos, steps/s", count * STEPS / took)


async def a_round(bench: Bench, driver: Driver, peer: Dbos, by_itself: str) -> None:
    """Measure each variant once; of S1 to S3 the ratios of processor time beside those of rates."""
    few = bench.sizes.part(0.002)
    bench.say("S1 saga, 64 in flight")
    steps = await served_rate(bench, driver, local, bench.sizes.part(0.008), "saga")
    bench.say("S1 dbos, 64 in flight")
    bench.figure("S1", steps / await dbos_rate(bench, peer, few))
    bench.say("S3 commands over Kafka")
    bench.figure("S3", await served_rate(bench, driver, remote, 2 * few, "commands over Kafka") / steps)
    bench.say("S4 one run alone")
    took = await driver.alone(local, 100)
    bench.figure("S4", percentile(took, 0.5))
    bench.figure("S4.p99", percentile(took, 0.99))
    bench.rate("dbos, one flow alone, p50, ms", percentile(await peer.ask("one 40"), 0.5))
    bench.say("S2 changes together")
    together = await by_hand(bench, by_itself, 2 * few, "changes together")
    bench.say("S2 changes one by one")
    with one_by_one():
        bench.figure("S2", together / await by_hand(bench, by_itself, 2 * few, "changes one by one"))
    for name, one, other in (
        ("S1", "dbos", "saga"),
        ("S2", "changes one by one", "changes together"),
        ("S3", "saga", "commands over Kafka"),
    ):
        pair = [bench.rates[f"{variant}, CPU ms a step"][-1] for variant in (one, other)]
        bench.rate(f"{name} by processor time", pair[0] / pair[1])


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    bench.say("S1 the peers' environment")
    bench.notes["dbos"] = version(await asyncio.to_thread(installed), "dbos")
    async with bench.database() as url, bench.database() as theirs, bench.database() as by_itself:
        async with working(url, bench.kafka) as driver, dbos(theirs) as peer:
            await driver.many(local, IN_FLIGHT)
            await driver.many(remote, IN_FLIGHT)
            for _ in range(bench.sizes.rounds):
                await a_round(bench, driver, peer, by_itself)
