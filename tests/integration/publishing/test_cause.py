"""What leaves with the transaction of a step belongs to its run: one business action, one correlation id."""

from __future__ import annotations

import json
from typing import Any

from milepost import Command, Context, Event, Milepost, Saga, Transaction, publish, send
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.waiting import until
from tests.support.workers import worker_on


class Order(BaseModel):
    id: str


class Done(BaseModel):
    ok: bool = True


class Noted(Event, type="cause.noted", topic="cause-noted", key="id"):
    id: str


class Ask(Command[Noted], type="cause.ask", topic="cause-asked", key="id"):
    id: str


def sagas(service: list[Milepost]) -> tuple[Saga[Order], Saga[Order]]:
    """One whose step writes all that a step can, and one that it starts with the service that is there by then."""
    outer = Saga("outer", version=1, input=Order, key=lambda order: order.id)
    inner = Saga("inner", version=1, input=Order, key=lambda order: order.id)

    @inner.tx_step()
    async def rest(ctx: Context[Order], tx: Transaction) -> Done:
        return Done()

    @outer.tx_step()
    async def write(ctx: Context[Order], tx: Transaction) -> Done:
        ctx.emit(Noted(id="emitted"))
        await tx.publish(Noted(id="published"))
        await publish(tx, Noted(id="by function"))
        await send(tx, Ask(id="sent"))
        await service[0].start(tx, inner, Order(id="i"))
        return Done()

    outer.flow(write)
    inner.flow(rest)
    return outer, inner


async def test_all_that_a_step_writes_has_its_runs_correlation_id_and_tenant(database_url: str) -> None:
    service: list[Milepost] = []
    outer, inner = sagas(service)
    async with rig(database_url, outer, inner) as it, worker_on(database_url, it.service) as hand:
        service.append(it.service)
        async with it.database.pool.acquire() as connection, connection.transaction():
            run = await it.service.start(connection, outer, Order(id="o"), tenant="acme")
        await hand.take(run.id, "outer", "write")
        await until(hand.idle, what="the end of the step")
        assert (await it.states(run.id))[""] == "SUCCEEDED"
        rows = await it.database.pool.fetch(
            "SELECT aggregateid, tenant, headers FROM milepost.outbox WHERE topic LIKE 'cause-%' ORDER BY seq"
        )
        found: list[tuple[Any, ...]] = []
        for row in rows:
            headers = json.loads(row["headers"])
            found.append((row["aggregateid"], row["tenant"], headers["ce_correlationid"]))
        whose = str(run.id)
        assert sorted(found) == [
            ("by function", "acme", whose),
            ("emitted", "acme", whose),
            ("published", "acme", whose),
            ("sent", "acme", whose),
        ]
        started = await it.value("SELECT correlation_id FROM milepost.run WHERE saga = 'inner'")
        assert started == whose
