"""A process with one consumer, for tests that kill it: SIGTERM asks it to stop, a second one at once.

An order says what its handler does: "wait…" waits until the table `gate` has a row, "die…" kills the process.
Every run is noted on a connection of its own; the effect is written in the handler's transaction.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import asyncpg
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

from tests.support.inbox import EFFECT, Paid, consumer_of, reader_of


class Handler:
    """The handler of this process."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def __call__(self, event: Paid, tx: Transaction) -> None:
        """Note the run, write the effect, then wait or die as the order says."""
        await self._pool.execute("INSERT INTO run (text, pid) VALUES ($1, $2)", event.order, os.getpid())
        await tx.connection.execute(EFFECT, tx.envelope.id, event.order)
        if event.order.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        while event.order.startswith("wait") and not await self._pool.fetchval("SELECT count(*) FROM gate"):
            await asyncio.sleep(0.05)


async def main() -> None:
    """Consume until told to stop."""
    settings = Settings.from_env()
    topic, stop = os.environ["TOPIC"], Stop(SystemClock(), settings.grace)
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.ask(now=stop.asked)
        print("asked to stop", flush=True)

    loop.add_signal_handler(signal.SIGTERM, asked)
    database = Database(settings)
    await database.open()
    async with asyncpg.create_pool(settings.dsn, min_size=1, max_size=2) as apart:
        retry = Retry(attempts=2, first=timedelta(milliseconds=10))
        consumer = consumer_of(topic, topic, Handler(apart), retry=retry)
        await reader_of(consumer, database, settings.kafka).run(stop)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
