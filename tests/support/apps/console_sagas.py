"""An order that can go wrong in every way that a person has to decide, to be looked at in the console.

The last letters of an order's id say how: -shut: the carrier refuses, and the refund is asked about; -stuck: closing it
fails until it is tried again, in front of a person; -lost: the bank never answers; -wait: nothing arrives.
"""

from __future__ import annotations

from datetime import timedelta

from milepost import (
    Absent,
    Context,
    Event,
    Probe,
    Refused,
    Repeat,
    Retry,
    Risk,
    Saga,
    Then,
    all_of,
    when,
)
from pydantic import BaseModel


class PlaceOrder(BaseModel):
    order_id: str
    amount: str = "9.90"


class Charge(BaseModel):
    id: str


class Arrived(Event, type="carrier.arrived", topic="console-arrivals", key="order_id", correlate="order_id"):
    order_id: str


#: Orders that this process has tried to close.
_asked_before = set[str]()

order = Saga("order", version=1, input=PlaceOrder, key=lambda o: o.order_id, severity=Risk.HIGH)
Ctx = Context[PlaceOrder]


@order.step(repeat=Repeat.SAFE, retry=Retry(attempts=2, first=timedelta(milliseconds=50)))
async def reserve_stock(ctx: Ctx) -> Charge:
    return Charge(id=f"r-{ctx.input.order_id}")


@reserve_stock.undo
async def release_stock(ctx: Ctx, done: Charge) -> None:
    return


@order.step(repeat=Repeat.ASK_FIRST, attempt_timeout=timedelta(seconds=5))
async def charge_card(ctx: Ctx) -> Charge:
    if ctx.input.order_id.endswith("-lost"):
        raise ConnectionResetError("the bank has closed the connection")
    return Charge(id=f"c-{ctx.input.order_id}")


@charge_card.probe(settle=timedelta(minutes=10))
async def find_charge(ctx: Ctx) -> Probe[Charge]:
    return Absent()


@charge_card.undo(risk=Risk.HIGH)
async def refund(ctx: Ctx, done: Charge) -> None:
    return


@order.step(repeat=Repeat.SAFE, no_undo="the refund voids it")
async def invoice(ctx: Ctx) -> None:
    return


@order.step(repeat=Repeat.SAFE, no_undo="nothing leaves the house before ship")
async def pack(ctx: Ctx) -> None:
    return


@order.step(repeat=Repeat.SAFE, irreversible=True)
async def ship(ctx: Ctx) -> Charge:
    if ctx.input.order_id.endswith("-shut"):
        raise Refused("CARRIER_CLOSED", "the carrier takes no parcels to that address")
    return Charge(id=f"t-{ctx.input.order_id}")


arrived = order.wait(
    "arrived", Arrived, match=lambda v: v.input.order_id, timeout=timedelta(days=3), on_timeout=Then.PERSON
)


@order.step(repeat=Repeat.SAFE, on_failure=Then.PERSON, retry=Retry(attempts=1))
async def close_order(ctx: Ctx) -> Charge:
    if ctx.input.order_id in _asked_before:
        return Charge(id="closed")
    _asked_before.add(ctx.input.order_id)
    raise Refused("BOOKS_CLOSED", "the books of this month are closed; ask accounting")


later = when(lambda v: v.input.order_id.endswith("-wait"), arrived, name="by_carrier")
stuck = when(lambda v: v.input.order_id.endswith("-stuck"), close_order, name="by_hand")
order.flow(reserve_stock, charge_card, all_of(invoice, pack), ship, later, stuck)


payout = Saga("payout", version=1, input=PlaceOrder, key=lambda o: o.order_id, severity=Risk.CRITICAL)


@payout.step(repeat=Repeat.SAFE, on_failure=Then.PERSON, retry=Retry(attempts=1))
async def transfer(ctx: Ctx) -> Charge:
    raise Refused("LIMIT", "more than may be paid out in a day")


payout.flow(transfer)
