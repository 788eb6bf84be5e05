from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import pytest
from milepost import RunState, StepState
from milepost.testing import Kit, open_kit
from shop.clients import Payments
from shop.contracts import DeliveryReport, PlaceOrder
from shop.sagas.order import charge_card, delivered, order, refund, ship
from shop.service import service

from tests.fakes import FakePayments, make_tables, provide_fakes

ORDER = PlaceOrder(order_id="o-1", sku="tea", amount=Decimal("9.90"))


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    async with open_kit(
        service, prepare=make_tables
    ) as kit:  # throwaway PostgreSQL, recording Kafka, stopped clock
        provide_fakes(kit)
        yield kit


async def test_lost_reply_charges_once(kit: Kit) -> None:
    bank = FakePayments()
    kit.provide(Payments, bank)
    kit.lose_reply(charge_card)  # the effect happens, the answer never comes
    run = await kit.start(order, ORDER)
    await kit.until_step(run, charge_card, StepState.UNKNOWN)
    await kit.until_step(run, delivered, StepState.WAITING)
    number = (await kit.result(run, ship)).tracking_id  # Shipment, typed
    await kit.deliver(DeliveryReport(order_id="o-1", tracking_id=number))
    await kit.until(run, RunState.SUCCEEDED)
    assert len(bank.charges) == 1


async def test_refund_waits_for_a_person(kit: Kit) -> None:
    kit.fail(ship, code="CARRIER_CLOSED")
    run = await kit.start(order, ORDER)
    await kit.until_step(run, refund, StepState.MANUAL_REQUIRED)
    await kit.advance(timedelta(days=30))  # a person who never answers loses nothing
    await kit.approve(run, refund, by="ann", reason="carrier closed")
    await kit.until(run, RunState.COMPENSATED)
