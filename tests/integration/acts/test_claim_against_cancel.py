"""Interleaving 5: a claim and a cancel have read the same rows; one of them wins, and the other one is decided anew.

On connections of their own, with a barrier between reading and storing: a run never ends while a worker has its step.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from milepost import Context, Repeat, Saga
from milepost.consumers import store_many, together
from milepost.sagas.facts import Act, Claim, Succeeded
from pydantic import BaseModel

from tests.support.engine import rig, worker_id

RUNS = 20


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int = 1


def saga() -> Saga[Order]:
    made = Saga("claimed", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.NEVER)
    async def charge(ctx: Context[Order]) -> Number:
        return Number()

    @charge.undo
    async def refund(ctx: Context[Order], done: Number) -> None: ...

    @made.step(repeat=Repeat.SAFE)
    async def ship(ctx: Context[Order]) -> Number:
        return Number()

    made.flow(charge, ship)
    return made


@pytest.mark.parametrize("undo", [True, False])
async def test_a_claim_and_a_cancel_that_have_read_the_same_have_one_winner(
    database_url: str, monkeypatch: pytest.MonkeyPatch, undo: bool
) -> None:
    order, barrier, left = saga(), asyncio.Barrier(2), 0

    async def load_rows(*args: Any) -> Any:
        nonlocal left
        found = await store_many.load_rows(*args)
        if left:
            left -= 1
            await asyncio.wait_for(barrier.wait(), 10)
        return found

    monkeypatch.setattr(together, "load_rows", load_rows)
    async with rig(database_url, order) as worker, rig(database_url, order) as person:
        claims = 0
        for n in range(RUNS):
            run = await worker.start(order, Order(id=f"o-{n}"))
            left = 2
            both: list[Any] = [
                worker.engine.change(run.id, Claim("charge", worker_id())),
                person.engine.change(run.id, Act("cancel", by="ann", reason="changed my mind", undo=undo)),
            ]
            claim, cancel = await asyncio.gather(*both)
            assert cancel is not None and cancel.decision.answer == "changed"
            assert claim is not None
            if claim.decision.claimed is None:
                assert await worker.states(run.id) == {"": "CANCELLED", "charge": "CANCELLED"}
                continue
            claims += 1
            assert await worker.states(run.id) == {"": "CANCEL_REQUESTED", "charge": "RUNNING"}
            done = Succeeded("charge", claim.decision.claimed.fence, {"value": 1})
            await worker.engine.change(run.id, done)
            wanted = (
                {"": "COMPENSATING", "charge": "SUCCEEDED", "refund": "COMPENSATION_PENDING"}
                if undo
                else {"": "CANCELLED", "charge": "SUCCEEDED"}
            )
            assert await worker.states(run.id) == wanted, (
                "what was done is known, and undone where it was asked for"
            )
        assert left == 0
        assert await worker.value("SELECT count(*) FROM milepost.step WHERE name = 'charge'") == RUNS
        assert (
            await worker.value("SELECT count(*) FROM milepost.history WHERE event = 'step.started'") == claims
        )
