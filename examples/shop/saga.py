"""The order as a saga: reserve, charge, ship, wait for the delivery, close; or else undo in reverse."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from milepost import Absent, Context, Found, Probe, Repeat, Retry, Saga, Then, Transaction
from pydantic import BaseModel
from sqlalchemy import update

from .clients import Bank, Carrier, Warehouse
from .contracts import DeliveryReport, PlaceOrder
from .tables import OrderRow

#: How long a parcel may take. Days in a real shop; here the demo has to see the end of it.
DELIVERY_TIMEOUT = timedelta(seconds=15)
#: How long the bank may still book a charge after that try's lease has ended; then "absent" counts.
SETTLE = timedelta(seconds=2)

PATIENT = Retry(attempts=10, first=timedelta(milliseconds=200), cap=timedelta(seconds=3))

Ctx: TypeAlias = Context[PlaceOrder]

order = Saga("order", version=1, input=PlaceOrder, key=lambda placed: placed.order_id)


class Reservation(BaseModel):
    """What the warehouse answered."""

    id: str


class Charge(BaseModel):
    """What the bank answered, or what the probe found there."""

    id: str


class Shipment(BaseModel):
    """What the carrier answered."""

    tracking_id: str


@order.step(repeat=Repeat.SAFE, retry=PATIENT)  # the warehouse dedupes on our key
async def reserve_stock(ctx: Ctx) -> Reservation:
    """Reserve the goods."""
    warehouse = ctx.use(Warehouse)
    return Reservation(id=await warehouse.reserve(ctx.input.order_id, ctx.input.sku, key=ctx.idempotency_key))


@reserve_stock.undo(retry=PATIENT)
async def release_stock(ctx: Ctx, done: Reservation) -> None:
    """Give the goods back."""
    await ctx.use(Warehouse).release(done.id, key=ctx.idempotency_key)


@order.step(repeat=Repeat.ASK_FIRST, retry=PATIENT)  # the bank does not: ask it before charging again
async def charge_card(ctx: Ctx) -> Charge:
    """Charge the card."""
    bank = ctx.use(Bank)
    charge = await bank.charge(ctx.input.order_id, ctx.input.amount, reference=ctx.idempotency_key)
    return Charge(id=charge)


@charge_card.probe(settle=SETTLE)
async def find_charge(ctx: Ctx) -> Probe[Charge]:
    """Ask the bank what became of the charge."""
    charge = await ctx.use(Bank).find_charge(reference=ctx.idempotency_key)
    return Absent() if charge is None else Found(Charge(id=charge))


@charge_card.undo(retry=PATIENT)
async def refund(ctx: Ctx, done: Charge) -> None:
    """Pay the charge back."""
    await ctx.use(Bank).refund(done.id, reference=ctx.idempotency_key)


@order.step(repeat=Repeat.SAFE, retry=PATIENT)
async def ship(ctx: Ctx) -> Shipment:
    """Hand the parcel to the carrier."""
    return Shipment(tracking_id=await ctx.use(Carrier).ship(ctx.input.order_id, key=ctx.idempotency_key))


@ship.undo(retry=PATIENT)
async def cancel_shipment(ctx: Ctx, done: Shipment) -> None:
    """Call the parcel back."""
    await ctx.use(Carrier).cancel(done.tracking_id, key=ctx.idempotency_key)


delivered = order.wait(
    "delivered",
    DeliveryReport,
    match=lambda view: view.result(ship).tracking_id,
    timeout=DELIVERY_TIMEOUT,
    on_timeout=Then.COMPENSATE,
)


@order.tx_step(on_failure=Then.PERSON)  # commits with its checkpoint: exactly once
async def close_order(ctx: Ctx, tx: Transaction) -> None:
    """Mark the order as done."""
    await tx.session.execute(update(OrderRow).where(OrderRow.id == ctx.input.order_id).values(state="DONE"))


order.flow(reserve_stock, charge_card, ship, delivered, close_order)
