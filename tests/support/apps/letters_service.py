"""A service whose handler a test breaks and mends through tables, as `milepost serve` loads it.

An order whose name is in the table `broken` fails; "wait…" waits, when it is handled again, until `gate` has a row.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import asyncpg
from milepost import Event, Milepost, Retry, Settings, Transaction

PREFIX = os.environ.get("LETTERS_PREFIX", "letters")
SETUP = (
    "CREATE TABLE broken (text text)",
    "CREATE TABLE gate (opened boolean)",
    "CREATE TABLE run (n bigserial, text text)",
)

settings = Settings.from_env()
service = Milepost(PREFIX, settings=settings)


class Paid(Event, type="test.paid", version=1, topic=f"{PREFIX}.events", key="order"):
    order: str


books = service.consumer(
    f"{PREFIX}-books",
    hold_key=True,
    batch=int(os.environ.get("LETTERS_BATCH", "500")),
    retry=Retry(attempts=2, first=timedelta(milliseconds=10)),
)


async def noted(query: str, *values: str) -> int:
    """Run on a connection of its own, so that it stays whatever becomes of the handler."""
    apart = await asyncpg.connect(settings.dsn)
    try:
        return int(await apart.fetchval(query, *values) or 0)
    finally:
        await apart.close()


@books.on(Paid)
async def book(event: Paid, tx: Transaction) -> None:
    await noted("INSERT INTO run (text) VALUES ($1)", event.order)
    await tx.connection.execute(
        "INSERT INTO effect (event, text) VALUES ($1, $2)", tx.envelope.id, event.order
    )
    if await noted("SELECT count(*) FROM broken WHERE text = $1", event.order):
        raise ValueError(f"{event.order} is broken")
    while event.order.startswith("wait") and not await noted("SELECT count(*) FROM gate"):
        await asyncio.sleep(0.05)
