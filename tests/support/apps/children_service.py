"""A service whose runs start children, and the ledger in which each child's step writes once."""

from __future__ import annotations

import os
from datetime import timedelta

from milepost import Context, Milepost, Refused, Retry, Saga, Settings, Transaction, all_of
from pydantic import BaseModel

PREFIX = os.environ.get("CHILDREN_PREFIX", "children")
LEDGER = "CREATE TABLE ledger (n bigserial PRIMARY KEY, act text NOT NULL, key text NOT NULL)"


class Item(BaseModel):
    """Input of a child; `fails` says that its step is refused."""

    name: str
    fails: bool = False


class Batch(BaseModel):
    """Input of a parent."""

    name: str
    fails: bool = False


item = Saga("item", version=1, input=Item, key=lambda given: given.name)


@item.tx_step(retry=Retry(attempts=50, first=timedelta(milliseconds=100), within=None))
async def handle(ctx: Context[Item], tx: Transaction) -> None:
    if ctx.input.fails:
        raise Refused("BROKEN")
    await tx.connection.execute("INSERT INTO ledger (act, key) VALUES ('do', $1)", ctx.run.key)


item.flow(item.timer("pause", timedelta(milliseconds=100)), handle)

batch = Saga("batch", version=1, input=Batch, key=lambda given: given.name)
left = batch.child("left", item, input=lambda v: Item(name=f"{v.input.name}-left"), no_undo="none needed")
right = batch.child(
    "right",
    item,
    input=lambda v: Item(name=f"{v.input.name}-right", fails=v.input.fails),
    no_undo="none needed",
)


@batch.tx_step(retry=Retry(attempts=50, first=timedelta(milliseconds=100), within=None))
async def close(ctx: Context[Batch], tx: Transaction) -> None:
    await tx.connection.execute("INSERT INTO ledger (act, key) VALUES ('close', $1)", ctx.run.key)


batch.flow(all_of(left, right), close)

service = Milepost(PREFIX, sagas=[batch, item], settings=Settings.from_env())
