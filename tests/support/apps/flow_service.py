"""A service with one consumer, for tests that kill, block and mislead its processes.

FLOW names its topic, its service and its consumer. SKEW_MINUTES sets this process's clock off. What an order says its
handler does: "hang" waits for ever, "block" stops the event loop; every other effect is a row.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime, timedelta

from milepost import Event, Milepost, Transaction
from milepost.schemas.ids import SystemClock

FLOW = os.environ["FLOW"]
TOPIC = f"{FLOW}.moves"
EFFECTS = "CREATE TABLE effect (n bigserial PRIMARY KEY, account text NOT NULL, step integer NOT NULL)"


class Moved(Event, type="flow.moved", version=1, topic=TOPIC, key="account"):
    """One step of an account; steps of one account come in order."""

    account: str
    step: int


class Skewed(SystemClock):
    """A clock that is minutes off; elapsed time is right."""

    def now(self) -> datetime:
        """Return the wrong time."""
        return super().now() + timedelta(minutes=float(os.environ.get("SKEW_MINUTES", "0")))


service = Milepost(FLOW)
service.clock = Skewed()
ledger = service.consumer(f"{FLOW}.ledger", batch=20)


@ledger.on(Moved)
async def book(event: Moved, tx: Transaction) -> None:
    """Write the effect."""
    await tx.connection.execute(
        "INSERT INTO effect (account, step) VALUES ($1, $2)", event.account, event.step
    )
    if event.account == "hang":
        await asyncio.Event().wait()
    if event.account == "block":
        time.sleep(3600)
