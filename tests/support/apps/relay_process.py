"""A relay as a process of its own: says who it is, then relays until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from aiokafka import AIOKafkaProducer
from milepost.outbox.relay import Relay
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop


class _Owner:
    """Ids whose first one is known outside."""

    def __init__(self) -> None:
        self.first = SystemIds().new()

    def new(self) -> Any:
        """Return it."""
        return self.first


def freeze_at(batch: int) -> None:
    """Stop this process (SIGSTOP) when it has checked its lease and is handing over its nth batch.

    Once thawed, the batch goes out, as one that had already been handed to the sender would.
    """
    send_batch = AIOKafkaProducer.send_batch
    handed = 0

    async def freezing(self: Any, builder: Any, topic: str, *, partition: int) -> Any:
        nonlocal handed
        handed += 1
        if handed == batch:
            os.kill(os.getpid(), signal.SIGSTOP)
            acknowledged = await send_batch(self, builder, topic, partition=partition)
            await acknowledged
            return acknowledged
        return await send_batch(self, builder, topic, partition=partition)

    AIOKafkaProducer.send_batch = freezing


async def main() -> None:
    """Run it."""
    settings, ids, clock = Settings.from_env(), _Owner(), SystemClock()
    if "FREEZE_AT" in os.environ:
        freeze_at(int(os.environ["FREEZE_AT"]))
    delivery = timedelta(seconds=float(os.environ.get("DELIVERY", "10")))
    stop = Stop(clock, settings.grace)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.ask)
    database = Database(settings)
    relay = Relay(database, clock=clock, ids=ids, delivery_timeout=delivery)
    print(ids.first, flush=True)
    await relay.run(stop)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
