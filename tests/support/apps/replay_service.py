"""A service whose consumer writes an effect, publishes a letter and starts a run for each order; see test_killed.py."""

from __future__ import annotations

import asyncio
import os

from milepost import Context, Event, Milepost, Saga, Settings, Transaction
from pydantic import BaseModel

from tests.support.inbox import EFFECT

PREFIX = os.environ.get("PREFIX", "replayed")
TOPIC = f"{PREFIX}.orders"


class Order(BaseModel):
    """Input of the saga."""

    order: str


class Placed(Event, type="test.paid", version=1, topic=TOPIC, key="order"):
    """What is replayed."""

    order: str


class Mailed(Event, type="test.mailed", version=1, topic=f"{PREFIX}.mails", key="order"):
    """Stands for a side effect that must not happen again."""

    order: str


saga = Saga("handled", version=1, input=Order, key=lambda o: o.order)


@saga.tx_step()
async def close(ctx: Context[Order], tx: Transaction) -> None:
    """Do nothing; the run is what counts."""


saga.flow(close)

service = Milepost(PREFIX, sagas=[saga], settings=Settings.from_env())
books = service.consumer(f"{PREFIX}-books", batch=10)


@books.on(Placed)
async def book(event: Placed, tx: Transaction) -> None:
    """Write, publish and start; slowly where the environment says so, to be killed meanwhile."""
    await tx.connection.execute(EFFECT, tx.envelope.id, event.order)
    await tx.publish(Mailed(order=event.order))
    await service.start(tx, saga, Order(order=event.order))
    await asyncio.sleep(float(os.environ.get("SLOW", "0")))
