"""A probe that answers wrongly is told so where people look: in its evidence and in the log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost import Absent, Repeat, Saga
from milepost.testing import open_kit
from sqlalchemy import text

from tests.support.kitshop import Companies, Ctx, PlaceOrder, Shipment, make_tables, shop
from tests.support.waiting import until


async def test_a_probe_that_returns_a_class_is_told_what_to_return(caplog: pytest.LogCaptureFixture) -> None:
    saga = Saga("misled", version=1, input=PlaceOrder, key=lambda placed: placed.order_id)

    @saga.step(repeat=Repeat.ASK_FIRST, no_undo="a test")
    async def act(ctx: Ctx) -> Shipment:
        return Shipment(tracking_id="x")

    @act.probe(settle=timedelta(seconds=1))
    async def ask(ctx: Ctx) -> Any:
        return Absent

    saga.flow(act)
    service = shop(saga)
    async with open_kit(service, prepare=make_tables) as kit:
        Companies().provide(kit)
        kit.lose_reply(act)
        await kit.start(saga, PlaceOrder(order_id="o-1"))

        async def told() -> str:
            await kit.advance(timedelta(seconds=20))
            async with service.transaction() as tx:
                found = await tx.session.execute(
                    text("SELECT evidence ->> 'message' FROM milepost.reconciliation LIMIT 1")
                )
                return str(found.scalar() or "")

        message = await until(told, within=60, what="the probe to be asked")
    assert "returned the class Absent, without (); it has to return Found(...), Absent(), " in message
    assert "misled/o-1 act, try 1: BAD_ANSWER the probe returned the class Absent" in caplog.text
