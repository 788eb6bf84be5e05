"""A service whose faults are looked at from outside: its one saga is CRITICAL, and calls a provider that may be silent.

SEEN is its name. PROVIDER is host:port of the other side.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from milepost import Event, Milepost, Repeat, Risk, Saga, Transaction
from pydantic import BaseModel

NAME = os.environ.get("SEEN", "seen")
PROVIDER = os.environ.get("PROVIDER", "")


class Order(BaseModel):
    """What is ordered."""

    id: str


class Heard(Event, type="seen.heard", version=1, topic=f"{NAME}.heard", key="id"):
    """Something that the service's consumer reads."""

    id: str


order = Saga("order", version=1, input=Order, key=lambda o: o.id, severity=Risk.CRITICAL)


@order.step(repeat=Repeat.SAFE)
async def ask(ctx: Any) -> None:
    """Ask the other side, and wait for its answer; orders that are quick need none."""
    if ctx.input.id.startswith("quick"):
        return
    host, _, port = PROVIDER.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.read(1)
    finally:
        writer.close()


order.flow(ask)

service = Milepost(NAME, sagas=[order])
books = service.consumer(f"{NAME}.books")


@books.on(Heard)
async def note(event: Heard, tx: Transaction) -> None:
    """Do nothing: that it was applied is enough."""
