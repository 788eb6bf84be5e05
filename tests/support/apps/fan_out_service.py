"""A service whose runs fan out, and the ledger in which the step of each item writes once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import timedelta

from milepost import Context, Milepost, Refused, Retry, Saga, Settings, Then, Transaction
from pydantic import BaseModel

PREFIX = os.environ.get("FAN_OUT_PREFIX", "fanout")
CONCURRENCY = int(os.environ.get("FAN_OUT_CONCURRENCY", "10"))
LEDGER = """
CREATE TABLE ledger (n bigserial PRIMARY KEY, act text NOT NULL, key text NOT NULL, started integer);
CREATE TABLE mended (done boolean);
CREATE TABLE listing (n bigserial, at integer NOT NULL);
"""
TRIES = Retry(attempts=50, first=timedelta(milliseconds=100), within=None)
#: How many items of a list are under way now.
STARTED = "SELECT count(*) FROM milepost.fanout_item WHERE state = 'STARTED'"


class Item(BaseModel):
    """Input of an item; `fails` says that its step is refused until somebody has mended that."""

    name: str
    fails: bool = False


class Batch(BaseModel):
    """Input of a run: so many items, of which the first so many fail; `slowly` has its list take a while."""

    name: str
    items: int
    bad: int = 0
    slowly: bool = False


item = Saga("item", version=1, input=Item, key=lambda given: given.name)


@item.tx_step(retry=TRIES)
async def handle(ctx: Context[Item], tx: Transaction) -> None:
    if ctx.input.fails and not await tx.connection.fetchval("SELECT count(*) FROM mended"):
        raise Refused("BROKEN")
    started = await tx.connection.fetchval(STARTED)
    await tx.connection.execute(
        "INSERT INTO ledger (act, key, started) VALUES ('do', $1, $2)", ctx.run.key, started
    )


item.flow(handle)


async def items(ctx: Context[Batch]) -> AsyncIterator[Item]:
    """List the items; a slow list says between them how far it is."""
    given = ctx.input
    for n in range(given.items):
        if given.slowly and n % 100 == 0:
            await ctx.heartbeat()
        yield Item(name=f"{given.name}-{n}", fails=n < given.bad)


batch = Saga("batch", version=1, input=Batch, key=lambda given: given.name)
spread = batch.each(
    "spread",
    item,
    items=items,
    concurrency=CONCURRENCY,
    min_success=0.9,
    on_failure=Then.PERSON,
    no_undo="the ledger stays",
)


@batch.tx_step(retry=TRIES)
async def close(ctx: Context[Batch], tx: Transaction) -> None:
    await tx.connection.execute("INSERT INTO ledger (act, key) VALUES ('close', $1)", ctx.run.key)


batch.flow(spread, close)

service = Milepost(PREFIX, sagas=[batch, item], settings=Settings.from_env())
