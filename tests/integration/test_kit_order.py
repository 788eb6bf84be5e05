"""An order from start to end in the kit: lost answers, events early, twice and never, undo."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from milepost import Milepost, RunRef, RunState, StateError, StepState
from milepost.testing import Kit

from tests.support.kitshop import (
    Companies,
    DeliveryReport,
    OrderCharged,
    OrderPlaced,
    PlaceOrder,
    cancel_shipment,
    charge_card,
    close_order,
    closed,
    delivered,
    ledger,
    opened,
    order,
    refund,
    release_stock,
    reserve_stock,
    rows,
    ship,
    step_row,
    undone,
)

ORDER = PlaceOrder(order_id="o-1")
REPORT = DeliveryReport(order_id="o-1", tracking_id="T-o-1")


@pytest.fixture
async def shop() -> AsyncIterator[tuple[Kit, Companies, Milepost]]:
    """A kit, its companies and the service."""
    async with opened() as (kit, companies, service):
        yield kit, companies, service


Shop = tuple[Kit, Companies, Milepost]


async def to_delivery(kit: Kit) -> RunRef:
    """Start an order and let it come to its wait."""
    run = await kit.start(order, ORDER)
    await kit.until_step(run, delivered, StepState.WAITING)
    return run


async def test_an_order_goes_through(shop: Shop) -> None:
    kit, companies, service = shop
    run = await to_delivery(kit)
    assert await rows(service, closed) == []
    await kit.deliver(REPORT)
    await kit.until(run, RunState.SUCCEEDED)
    assert list(companies.warehouse.reserved) == [f"{run.id}:reserve_stock"]
    assert companies.bank.charges == [f"{run.id}:charge_card"]
    assert list(companies.carrier.parcels) == [f"{run.id}:ship"]
    assert await rows(service, closed) == ["o-1"]
    assert (await kit.result(run, ship)).tracking_id == "T-o-1"
    assert await kit.result(run, delivered) == REPORT
    assert await kit.published(OrderCharged) == [OrderCharged(order_id="o-1")]


async def test_a_lost_reply_is_asked_for_and_charges_once(shop: Shop) -> None:
    kit, companies, service = shop
    kit.lose_reply(charge_card)
    run = await kit.start(order, ORDER)
    await kit.until_step(run, charge_card, StepState.UNKNOWN)
    await kit.until_step(run, charge_card, StepState.RECONCILING)
    await kit.until_step(run, delivered, StepState.WAITING)
    assert len(companies.bank.charges) == 1
    assert companies.bank.asked == 1
    assert (await kit.result(run, charge_card)).id == "C-1"
    assert (await step_row(service, run, "charge_card"))["attempt"] == 1


async def test_replies_of_a_safe_step_may_get_lost_until_its_attempts_are_used_up(shop: Shop) -> None:
    kit, companies, service = shop
    kit.lose_reply(ship, times=2)
    run = await kit.start(order, ORDER)
    await kit.until_step(run, ship, StepState.RETRY_PENDING)
    await kit.until_step(run, delivered, StepState.WAITING)
    assert companies.carrier.calls == 3
    assert list(companies.carrier.parcels) == [f"{run.id}:ship"]
    assert (await step_row(service, run, "ship"))["attempt"] == 3


async def test_an_event_that_comes_before_the_wait_is_kept_for_it(shop: Shop) -> None:
    kit, companies, service = shop
    run = await kit.start(order, ORDER)
    await kit.deliver(REPORT)
    assert companies.carrier.calls == 0
    await kit.until(run, RunState.SUCCEEDED)
    assert await rows(service, closed) == ["o-1"]


async def test_an_event_that_comes_three_times_counts_once(shop: Shop) -> None:
    kit, _, service = shop
    run = await to_delivery(kit)
    await kit.deliver(REPORT, copies=2)
    await kit.until(run, RunState.SUCCEEDED)
    await kit.deliver(REPORT)
    await kit.advance(timedelta(0))
    assert await rows(service, closed) == ["o-1"]


async def test_an_event_of_another_order_does_not_end_the_wait(shop: Shop) -> None:
    kit, _, service = shop
    run = await to_delivery(kit)
    await kit.deliver(DeliveryReport(order_id="o-2", tracking_id="T-o-2"))
    await kit.advance(timedelta(hours=1))
    assert (await step_row(service, run, "delivered"))["state"] == "WAITING"


async def test_a_delivery_that_never_comes_undoes_the_order_in_reverse(shop: Shop) -> None:
    kit, companies, service = shop
    run = await to_delivery(kit)
    await kit.advance(timedelta(days=3) - timedelta(seconds=1))
    assert (await step_row(service, run, "delivered"))["state"] == "WAITING"
    await kit.advance(timedelta(seconds=1))
    await kit.until(run, RunState.COMPENSATED)
    assert await undone(service, run) == ["cancel_shipment", "refund", "release_stock"]
    assert companies.carrier.cancelled == ["T-o-1"]
    assert companies.bank.refunds == ["C-1"]
    assert companies.warehouse.released == ["R-o-1"]
    assert await rows(service, closed) == []


async def test_a_refused_step_undoes_only_what_was_done(shop: Shop) -> None:
    kit, companies, service = shop
    kit.fail(ship, code="CARRIER_CLOSED")
    run = await kit.start(order, ORDER)
    await kit.until(run, RunState.COMPENSATED)
    assert companies.carrier.calls == 0
    assert (await step_row(service, run, "ship"))["code"] == "CARRIER_CLOSED"
    assert await undone(service, run) == ["refund", "release_stock"]
    assert companies.carrier.cancelled == []


async def test_a_step_may_be_refused_a_few_times_only(shop: Shop) -> None:
    kit, _, _ = shop
    kit.fail(ship, code="CARRIER_CLOSED", times=1)
    first = await kit.start(order, ORDER)
    await kit.until(first, RunState.COMPENSATED)
    second = await kit.start(order, PlaceOrder(order_id="o-2"))
    await kit.until_step(second, delivered, StepState.WAITING)


async def test_an_undo_that_is_refused_stops_the_undoing_for_a_person(shop: Shop) -> None:
    kit, companies, service = shop
    kit.fail(refund, code="ACCOUNT_CLOSED")
    run = await to_delivery(kit)
    await kit.advance(timedelta(days=3))
    await kit.until(run, RunState.COMPENSATION_FAILED)
    await kit.advance(timedelta(days=30))
    assert (await step_row(service, run, "refund"))["state"] == StepState.COMPENSATION_FAILED
    assert await undone(service, run) == ["cancel_shipment"]
    assert companies.warehouse.released == []


async def test_an_undo_is_tried_again_until_its_attempts_are_used_up(shop: Shop) -> None:
    kit, companies, service = shop
    kit.lose_reply(ship, times=0)
    run = await to_delivery(kit)
    original = companies.carrier.cancel
    tries = 0

    async def away(tracking_id: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionRefusedError
        await original(tracking_id)

    companies.carrier.cancel = away  # type: ignore[method-assign]
    await kit.advance(timedelta(days=3))
    await kit.until(run, RunState.COMPENSATED)
    assert tries == 2
    assert (await step_row(service, run, "cancel_shipment"))["attempt"] == 2


async def test_undos_pass_through_their_states(shop: Shop) -> None:
    kit, _, _ = shop
    kit.fail(ship, code="NO")
    run = await kit.start(order, ORDER)
    await kit.until(run, RunState.COMPENSATING)
    await kit.until_step(run, refund, StepState.COMPENSATING)
    await kit.until_step(run, release_stock, StepState.COMPENSATED)
    with pytest.raises(AssertionError, match="cancel_shipment of order/o-1 has not been COMPENSATED"):
        await kit.until_step(run, cancel_shipment, StepState.COMPENSATED)


async def test_starting_twice_is_one_run_and_another_input_is_refused(shop: Shop) -> None:
    kit, companies, _ = shop
    first = await kit.start(order, ORDER)
    again = await kit.start(order, ORDER)
    assert again == first
    with pytest.raises(StateError) as refused:
        await kit.start(order, PlaceOrder(order_id="o-1", amount=11))
    assert refused.value.code == "MP302"
    assert "changed: amount" in str(refused.value)
    await kit.until_step(first, delivered, StepState.WAITING)
    assert len(companies.bank.charges) == 1


async def test_a_run_exists_only_when_its_transaction_commits(shop: Shop) -> None:
    kit, companies, service = shop
    with pytest.raises(ZeroDivisionError):
        async with service.transaction() as tx:
            await service.start(tx, order, ORDER)
            await tx.publish(OrderPlaced(order_id="o-1"))
            raise ZeroDivisionError
    await kit.advance(timedelta(days=1))
    assert companies.warehouse.calls == []
    assert await kit.published(OrderPlaced) == []


async def test_a_consumer_books_an_event_once(shop: Shop) -> None:
    kit, _, service = shop
    await kit.deliver(OrderPlaced(order_id="o-1"), copies=2)
    assert await rows(service, ledger) == ["o-1"]
    await kit.deliver(OrderPlaced(order_id="o-1"))
    assert await rows(service, ledger) == ["o-1", "o-1"]


async def test_a_published_event_reaches_the_consumer(shop: Shop) -> None:
    kit, _, service = shop
    async with service.transaction() as tx:
        await tx.publish(OrderPlaced(order_id="o-7"))
    assert await kit.published(OrderPlaced) == [OrderPlaced(order_id="o-7")]
    assert await rows(service, ledger) == []
    await kit.advance(timedelta(0))
    assert await rows(service, ledger) == ["o-7"]


async def test_the_transactional_step_that_fails_goes_to_a_person_and_leaves_nothing(shop: Shop) -> None:
    kit, _, service = shop
    kit.fail(close_order, code="BOOKS_CLOSED")
    run = await to_delivery(kit)
    await kit.deliver(REPORT)
    await kit.until(run, RunState.MANUAL_REQUIRED)
    assert (await step_row(service, run, "close_order"))["code"] == "BOOKS_CLOSED"
    assert await rows(service, closed) == []


async def test_a_transactional_step_whose_try_times_out_is_rolled_back_and_done_again(shop: Shop) -> None:
    kit, _, service = shop
    kit.lose_reply(close_order)
    run = await to_delivery(kit)
    await kit.deliver(REPORT)
    await kit.until(run, RunState.SUCCEEDED)
    assert await rows(service, closed) == ["o-1"]
    assert (await step_row(service, run, "close_order"))["attempt"] == 2


async def test_many_orders_side_by_side(shop: Shop) -> None:
    kit, companies, service = shop
    kit.lose_reply(charge_card, times=3)
    runs = [await kit.start(order, PlaceOrder(order_id=f"o-{n}")) for n in range(10)]
    for run in runs:
        await kit.until_step(run, delivered, StepState.WAITING)
    for n in reversed(range(10)):
        await kit.deliver(DeliveryReport(order_id=f"o-{n}", tracking_id=f"T-o-{n}"))
    for run in runs:
        await kit.until(run, RunState.SUCCEEDED)
    assert len(set(companies.bank.charges)) == len(companies.bank.charges) == 10
    assert await rows(service, closed) == sorted(f"o-{n}" for n in range(10))
    assert (await step_row(service, runs[0], reserve_stock.name))["attempt"] == 1
