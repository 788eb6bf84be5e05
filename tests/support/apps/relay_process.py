"""A relay as a process of its own: says who it is, then relays until SIGTERM.

TAKEN is the share of pages of which somebody says that nothing of them is in a hurry.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
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


class _Skewed(SystemClock):
    """A machine's clock that is wrong."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        """Return the wrong time."""
        return super().now() + self._ahead


def at_batch(number: int, act: Callable[[str], None]) -> None:
    """Call `act` around the handing over of this process's nth batch: with "before", and with "acknowledged".

    At "before" the lease has been checked. The batch goes out whatever happens then, as one would that had already
    been handed to the sender.
    """
    send_batch = AIOKafkaProducer.send_batch
    handed = 0

    async def watched(self: Any, builder: Any, topic: str, *, partition: int) -> Any:
        nonlocal handed
        handed += 1
        if handed != number:
            return await send_batch(self, builder, topic, partition=partition)
        act("before")
        acknowledged = await send_batch(self, builder, topic, partition=partition)
        await acknowledged
        act("acknowledged")
        return acknowledged

    AIOKafkaProducer.send_batch = watched


def signal_at(moment: str, number: int) -> Callable[[str], None]:
    """Return an act that sends this process a signal at a moment."""

    def act(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), number)

    return act


async def main() -> None:
    """Run it."""
    settings, ids = Settings.from_env(), _Owner()
    clock = _Skewed(timedelta(seconds=float(os.environ.get("AHEAD", "0"))))
    if "FREEZE_AT" in os.environ:
        at_batch(int(os.environ["FREEZE_AT"]), signal_at("before", signal.SIGSTOP))
    if "DIE_AT" in os.environ:
        at_batch(int(os.environ["DIE_AT"]), signal_at("acknowledged", signal.SIGKILL))
    delivery = timedelta(seconds=float(os.environ.get("DELIVERY", "10")))
    stop = Stop(clock, settings.grace)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.ask)
    database = Database(settings)
    share, dice = float(os.environ.get("TAKEN", "0")), random.Random()
    relay = Relay(
        database, clock=clock, ids=ids, delivery_timeout=delivery, seen=lambda rows: dice.random() < share
    )
    print(ids.first, flush=True)
    await relay.run(stop)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
