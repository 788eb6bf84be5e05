from datetime import timedelta
from typing import TypeAlias

from milepost import Absent, Context, Found, Probe, Repeat, Retry, Risk, Saga, Then, Transaction, all_of
from pydantic import BaseModel
from sqlalchemy import update

from shop.clients import Carrier, Payments, Warehouse
from shop.contracts import DeliveryReport, PlaceOrder
from shop.tables import OrderRow

order = Saga("order", version=1, input=PlaceOrder, key=lambda o: o.order_id)
Ctx: TypeAlias = Context[PlaceOrder]


class Reservation(BaseModel):
    id: str


class Charge(BaseModel):
    id: str


class Document(BaseModel):
    url: str


class Shipment(BaseModel):
    tracking_id: str


@order.step(repeat=Repeat.SAFE, retry=Retry(attempts=5))  # the warehouse dedupes on our key
async def reserve_stock(ctx: Ctx) -> Reservation:
    return Reservation(id=await ctx.use(Warehouse).reserve(ctx.input.sku, key=ctx.idempotency_key))


@reserve_stock.undo
async def release_stock(ctx: Ctx, done: Reservation) -> None:
    await ctx.use(Warehouse).release(done.id)


@order.step(repeat=Repeat.ASK_FIRST)  # the bank does not: ask before repeating
async def charge_card(ctx: Ctx) -> Charge:
    return Charge(id=await ctx.use(Payments).charge(ctx.input.amount, reference=ctx.idempotency_key))


@charge_card.probe(settle=timedelta(minutes=2))  # "absent" counts only 2 min after that try's lease ended
async def find_charge(ctx: Ctx) -> Probe[Charge]:
    charge_id = await ctx.use(Payments).find(reference=ctx.idempotency_key)
    if charge_id is None:
        return Absent()
    return Found(Charge(id=charge_id))


@charge_card.undo(risk=Risk.HIGH)  # waits for a person
async def refund(ctx: Ctx, done: Charge) -> None:
    await ctx.use(Payments).refund(done.id, reference=ctx.idempotency_key)


@order.step(repeat=Repeat.SAFE, no_undo="the refund voids it")
async def invoice(ctx: Ctx) -> Document:
    return Document(url=await ctx.use(Payments).invoice(ctx.result(charge_card).id))


@order.step(repeat=Repeat.SAFE, no_undo="nothing leaves the house before ship")
async def pack(ctx: Ctx) -> None:
    await ctx.use(Warehouse).pack(ctx.result(reserve_stock).id)


@order.step(repeat=Repeat.SAFE, irreversible=True)
async def ship(ctx: Ctx) -> Shipment:
    number = await ctx.use(Carrier).ship(ctx.input.order_id, key=ctx.idempotency_key)
    return Shipment(tracking_id=number)


delivered = order.wait(
    "delivered",
    DeliveryReport,
    match=lambda v: v.result(ship).tracking_id,
    timeout=timedelta(days=3),
    on_timeout=Then.RECONCILE,
)


@delivered.probe
async def ask_carrier(ctx: Ctx) -> Probe[DeliveryReport]:
    number = ctx.result(ship).tracking_id
    if not await ctx.use(Carrier).is_delivered(number):
        return Absent()
    return Found(DeliveryReport(order_id=ctx.input.order_id, tracking_id=number))


@order.tx_step(on_failure=Then.PERSON)  # commits with its checkpoint: exactly once
async def close_order(ctx: Ctx, tx: Transaction) -> None:
    await tx.session.execute(update(OrderRow).where(OrderRow.id == ctx.input.order_id).values(state="DONE"))


order.flow(reserve_stock, charge_card, all_of(invoice, pack), ship, delivered, close_order)
