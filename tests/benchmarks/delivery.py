"""What each way of having an effect costs: bytes of PostgreSQL's log and time, per event or step. For docs/delivery.md.

Run it on a quiet machine with a server of its own (no MILEPOST_TEST_ variable set, since the log is the whole
server's): `python -m tests.benchmarks.delivery`. Every unit runs alone, one after the other, on one
connection's worth of work, so that the figures tell cost and not throughput.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from milepost import Context, Event, Repeat, Saga, Transaction, publish
from milepost.consumers.publishing import publish_in
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.inbox import EFFECT, EFFECTS, IDS, Paid, consumer_of, record
from tests.support.servers import fresh_database, migrated_template, postgres
from tests.support.waiting import until
from tests.support.workers import worker_on

UNITS, STEPS, WARM = 400, 8, 20


class Noted(Event, type="bench.noted", version=1, topic="bench", key="order"):
    """An event of a producer."""

    order: str


class Order(BaseModel):
    """Input of the sagas."""

    id: str


class Number(BaseModel):
    """Result of a step."""

    value: int = 1


def saga_of(name: str, *, repeat: Repeat | None) -> Saga[Order]:
    """Return a saga of eight steps that do as little as they can; transactional ones when `repeat` is None."""
    saga = Saga(name, version=1, input=Order, key=lambda order: order.id)
    nodes = []
    for n in range(STEPS):
        if repeat is None:

            async def write(ctx: Context[Order], tx: Transaction) -> Number:
                await tx.connection.execute(EFFECT, IDS.new(), ctx.input.id)
                return Number()

            nodes.append(saga.tx_step(name=f"s{n}")(write))
        else:

            async def call(ctx: Context[Order]) -> Number:
                return Number()

            nodes.append(saga.step(repeat=repeat, name=f"s{n}", no_undo="nothing is done")(call))
    saga.flow(*nodes)
    return saga


class Meter:
    """Counts bytes of log of the whole server while something runs."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def measure(self, what: str, units: int, act: Callable[[], Awaitable[object]]) -> None:
        """Run something and print what it cost per unit."""
        before, began = await self._written(), time.perf_counter()
        await act()
        seconds, after = time.perf_counter() - began, await self._written()
        print(f"{what:<36} {(after - before) / units:6.0f} B {seconds / units * 1000:6.2f} ms")

    async def _written(self) -> int:
        return int(await self._connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'"))


async def main() -> None:
    """Measure everything once."""
    with postgres() as server, migrated_template(server) as template, fresh_database(server, template) as url:
        sagas = [saga_of("safe", repeat=Repeat.SAFE), saga_of("transactional", repeat=None)]
        never = saga_of("never", repeat=Repeat.NEVER)
        async with rig(url, *sagas, never) as found:
            connection = await asyncpg.connect(url)
            await connection.execute(EFFECTS)
            await producers(Meter(connection), found)
            await consumers(Meter(connection), found)
            for saga in (*sagas, never):
                await steps(Meter(connection), found, url, saga)
            await operations(Meter(connection), found)
            await connection.close()


async def producers(meter: Meter, found: Rig) -> None:
    """A change of one row, without and with an event."""

    async def change(*, event: bool) -> None:
        async with found.database.pool.acquire() as connection:
            for n in range(UNITS):
                async with connection.transaction():
                    await connection.execute(EFFECT, IDS.new(), "x")
                    if event:
                        await publish(connection, Noted(order=str(n)))

    await change(event=True)
    await meter.measure("a change of one row", UNITS, lambda: change(event=False))
    await meter.measure("the same with publish", UNITS, lambda: change(event=True))


async def consumers(meter: Meter, found: Rig) -> None:
    """An event applied by a handler that writes one row, in batches and alone."""

    async def handle(event: Paid, tx: Transaction) -> None:
        await tx.connection.execute(EFFECT, tx.envelope.id, event.order)

    intake = Intake(consumer_of("c", "t", handle), found.database, publish_in, clock=SystemClock())
    await intake.handle([record(n) for n in range(WARM)])
    for size, words in ((200, "in batches of 200"), (1, "alone")):
        batches = [[record(n + k) for k in range(size)] for n in range(0, UNITS, size)]

        async def apply(batches: Any = batches) -> None:
            for batch in batches:
                await intake.handle(batch)

        await meter.measure(f"a handler's row, {words}", UNITS, apply)


async def steps(meter: Meter, found: Rig, url: str, saga: Saga[Order]) -> None:
    """Steps of a saga, inline, by one worker."""
    runs = UNITS // STEPS
    async with worker_on(url, found.service) as hand:

        async def run(prefix: str, amount: int) -> None:
            for n in range(amount):
                ref = await found.start(saga, Order(id=f"{prefix}{n}"))
                await hand.take(ref.id, saga.name, "s0")
                await until(hand.idle, every=0.001)
                assert (await found.states(ref.id))[""] == "SUCCEEDED"

        await run("warm", 3)
        await meter.measure(f"a step, {saga.name}", runs * STEPS, lambda: run("run", runs))


async def operations(meter: Meter, found: Rig) -> None:
    """An effect under `once`, and asking for its answer again."""

    async def do(_: str) -> Number:
        return Number()

    async def each() -> None:
        for n in range(UNITS):
            await found.service.once(
                kind="bench", key=str(n), request=Order(id=str(n)), result=Number, repeat=Repeat.SAFE, do=do
            )

    await meter.measure("an effect under once", UNITS, each)
    await meter.measure("its stored answer", UNITS, each)
    await found.service.close()


if __name__ == "__main__":
    asyncio.run(main())
