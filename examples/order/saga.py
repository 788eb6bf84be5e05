"""The order as a saga. Until the parcel is handed over everything can be undone; from then on it only goes forward."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias, cast

from milepost import (
    Absent,
    Context,
    Found,
    InProgress,
    Probe,
    Repeat,
    Retry,
    Risk,
    Saga,
    Then,
    Transaction,
    View,
    all_of,
    sequence,
    when,
)
from pydantic import BaseModel
from sqlalchemy import update

from ..shop.clients import Bank
from .clients import Carrier, Letter, Mailer, Warehouse
from .contracts import ParcelReport, Payback, PlaceOrder
from .tables import InvoiceRow, OrderRow

#: How long a parcel may take before the carrier is asked. Days in a real shop; here the end has to be seen.
DELIVERY_TIMEOUT = timedelta(seconds=6)
#: How long the bank may still book a charge after that try's lease has ended; then "absent" counts.
SETTLE = timedelta(seconds=2)
#: How long the question whether money goes back stands, before somebody else has to look at it.
CLAIM_EXPIRES = timedelta(days=7)
#: Whoever approves or rejects a refund of a parcel that did not arrive needs this role.
CLAIMS = "claims"

PATIENT = Retry(attempts=10, first=timedelta(milliseconds=200), cap=timedelta(seconds=3))

Ctx: TypeAlias = Context[PlaceOrder]
Seen: TypeAlias = View[PlaceOrder]

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


# --- until the parcel is handed over ------------------------------------------------------------


@order.tx_step()
async def open_order(ctx: Ctx, tx: Transaction) -> None:
    """Note that it is being worked on. What it undoes last is the customer's not knowing."""
    await tx.session.execute(update(OrderRow).where(OrderRow.id == ctx.input.order_id).values(state="OPEN"))


@open_order.undo(retry=PATIENT)
async def say_sorry(ctx: Ctx, done: None) -> None:
    """Tell the customer that nothing comes of it; the last of all undos."""
    await ctx.use(Mailer).write(ctx.input.order_id, "cancelled", key=ctx.idempotency_key)


@order.step(repeat=Repeat.SAFE, retry=PATIENT)  # the warehouse dedupes on our key
async def reserve_stock(ctx: Ctx) -> Reservation:
    """Reserve the goods. The warehouse says no when there are none: of two orders for the last item, to one of them."""
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


@charge_card.undo(risk=Risk.HIGH, retry=PATIENT)  # waits for a person; the stock stays reserved meanwhile
async def refund(ctx: Ctx, done: Charge) -> None:
    """Pay the charge back."""
    await ctx.use(Bank).refund(done.id, reference=ctx.idempotency_key)


@order.tx_step(no_undo="the refund voids it")
async def invoice(ctx: Ctx, tx: Transaction) -> None:
    """Write the invoice."""
    tx.session.add(InvoiceRow(order_id=ctx.input.order_id, amount=ctx.input.amount))


@order.step(repeat=Repeat.SAFE, retry=PATIENT, no_undo="nothing leaves the house before ship")
async def wrap(ctx: Ctx) -> None:
    """Wrap it as a gift."""
    await ctx.use(Warehouse).wrap(ctx.result(reserve_stock).id, key=ctx.idempotency_key)


@order.step(repeat=Repeat.SAFE, retry=PATIENT, no_undo="nothing leaves the house before ship")
async def pack(ctx: Ctx) -> None:
    """Pack it."""
    await ctx.use(Warehouse).pack(ctx.result(reserve_stock).id, key=ctx.idempotency_key)


@order.step(repeat=Repeat.SAFE, retry=PATIENT, irreversible=True)
async def ship(ctx: Ctx) -> Shipment:
    """Hand the parcel to the carrier. Refused, everything above is undone; taken, nothing is undone any more."""
    number = await ctx.use(Carrier).send(ctx.input.order_id, ctx.input.address, key=ctx.idempotency_key)
    return Shipment(tracking_id=number)


# --- from then on: forward only, and a person where that fails ----------------------------------

parcel_ended = order.wait(
    "parcel_ended",
    ParcelReport,
    match=lambda view: view.result(ship).tracking_id,
    timeout=DELIVERY_TIMEOUT,
    on_timeout=Then.RECONCILE,  # no report came: ask
)


@parcel_ended.probe
async def ask_carrier(ctx: Ctx) -> Probe[ParcelReport]:
    """Ask the carrier what became of the parcel."""
    number = ctx.result(ship).tracking_id
    outcome = await ctx.use(Carrier).outcome(number)
    if not outcome:
        return InProgress(ask_again=timedelta(seconds=1))
    known = cast(Literal["delivered", "returned", "lost"], outcome)
    return Found(ParcelReport(order_id=ctx.input.order_id, tracking_id=number, outcome=known))


@order.step(repeat=Repeat.SAFE, retry=PATIENT, on_failure=Then.PERSON)
async def take_back(ctx: Ctx) -> None:
    """Put what came back on the shelf again."""
    await ctx.use(Warehouse).release(ctx.result(reserve_stock).id, key=ctx.idempotency_key)


def _payback(seen: Seen) -> Payback:
    why = f"the parcel is {seen.result(parcel_ended).outcome}"
    return Payback(order_id=seen.input.order_id, amount=seen.input.amount, why=why)


payback_ok = order.approval(
    "payback_ok",
    roles=frozenset({CLAIMS}),
    expires=CLAIM_EXPIRES,
    on_reject=Then.CONTINUE,
    params=_payback,
)


@order.step(
    repeat=Repeat.SAFE, retry=PATIENT, on_failure=Then.PERSON
)  # the bank pays back once per reference
async def pay_back(ctx: Ctx) -> None:
    """Pay the charge back; the same as `refund`, on the way forward."""
    await ctx.use(Bank).refund(ctx.result(charge_card).id, reference=ctx.idempotency_key)


@order.tx_step(on_failure=Then.PERSON)  # commits with its checkpoint: exactly once
async def close_order(ctx: Ctx, tx: Transaction) -> None:
    """Mark how it ended."""
    state = _ended(ctx).upper()
    await tx.session.execute(update(OrderRow).where(OrderRow.id == ctx.input.order_id).values(state=state))


@order.step(repeat=Repeat.SAFE, retry=PATIENT, on_failure=Then.PERSON)
async def notify(ctx: Ctx) -> None:
    """Tell the customer how it ended."""
    await ctx.use(Mailer).write(ctx.input.order_id, _ended(ctx), key=ctx.idempotency_key)


def _ended(seen: Seen) -> Letter:
    if seen.result(parcel_ended).outcome == "delivered":
        return "delivered"
    return "refunded" if seen.result(payback_ok).approved else "kept"


order.flow(
    open_order,
    reserve_stock,
    charge_card,
    all_of(invoice, sequence(when(lambda seen: seen.input.gift, wrap), pack)),
    ship,
    parcel_ended,
    when(
        lambda seen: seen.result(parcel_ended).outcome != "delivered",
        when(lambda seen: seen.result(parcel_ended).outcome == "returned", take_back, name="came_back"),
        payback_ok,
        when(lambda seen: seen.result(payback_ok).approved, pay_back, name="approved"),
        name="not_delivered",
    ),
    close_order,
    notify,
)
