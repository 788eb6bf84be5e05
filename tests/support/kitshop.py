"""A small shop for tests of the kit: an order saga, a consumer, and companies in memory that count their calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

from milepost import (
    Absent,
    Context,
    Event,
    Found,
    Milepost,
    Probe,
    Repeat,
    Retry,
    RunRef,
    Saga,
    Settings,
    StepState,
    Then,
    Transaction,
)
from milepost.testing import Kit, open_kit
from pydantic import BaseModel, PostgresDsn
from sqlalchemy import Column, Integer, MetaData, String, Table, column, insert, select, table
from sqlalchemy.ext.asyncio import create_async_engine

#: A server that does not exist: everything in these tests has to reach the kit's own.
NOWHERE = Settings(
    database_url=PostgresDsn("postgresql://nobody@milepost.invalid/none"), kafka="milepost.invalid:1"
)
SETTLE = timedelta(minutes=2)

# --- the user's tables --------------------------------------------------------------------------------

tables = MetaData()
closed = Table("closed", tables, Column("n", Integer, primary_key=True), Column("order_id", String))
ledger = Table("ledger", tables, Column("n", Integer, primary_key=True), Column("order_id", String))


async def make_tables(tx: Transaction) -> None:
    """Make the user's tables; hand this to `open_kit` as `prepare`."""
    await tx.session.run_sync(lambda session: tables.create_all(session.connection()))


# --- events and input ---------------------------------------------------------------------------------


class PlaceOrder(BaseModel):
    """The saga's input."""

    order_id: str
    amount: int = 10


class OrderPlaced(Event, type="kitshop.order-placed", topic="orders", key="order_id"):
    """Published by the web service."""

    order_id: str


class OrderCharged(Event, type="kitshop.order-charged", topic="charges", key="order_id"):
    """Emitted by the charging step."""

    order_id: str


class DeliveryReport(
    Event, type="carrier.delivered", topic="deliveries", key="order_id", correlate="tracking_id"
):
    """Reported by the carrier."""

    order_id: str
    tracking_id: str


# --- companies in memory ------------------------------------------------------------------------------


class Warehouse:
    """Dedupes on the key."""

    def __init__(self) -> None:
        self.reserved: dict[str, str] = {}
        self.released: list[str] = []
        self.calls: list[str] = []

    async def reserve(self, order: str, key: str) -> str:
        self.calls.append(key)
        return self.reserved.setdefault(key, f"R-{order}")

    async def release(self, reservation: str) -> None:
        self.released.append(reservation)


class Bank:
    """Charges again for every call; can be asked by reference."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.refunds: list[str] = []
        self.asked = 0

    async def charge(self, reference: str) -> str:
        self.charges.append(reference)
        return f"C-{len(self.charges)}"

    async def find(self, reference: str) -> str | None:
        self.asked += 1
        return f"C-{self.charges.index(reference) + 1}" if reference in self.charges else None

    async def refund(self, charge: str) -> None:
        self.refunds.append(charge)


class Carrier:
    """Dedupes on the key; may know that a parcel arrived."""

    def __init__(self) -> None:
        self.parcels: dict[str, str] = {}
        self.arrived: set[str] = set()
        self.calls = 0
        self.asked = 0
        self.cancelled: list[str] = []

    async def ship(self, order: str, key: str) -> str:
        self.calls += 1
        return self.parcels.setdefault(key, f"T-{order}")

    async def cancel(self, tracking_id: str) -> None:
        self.cancelled.append(tracking_id)

    async def is_delivered(self, tracking_id: str) -> bool:
        self.asked += 1
        return tracking_id in self.arrived


class Companies:
    """All three, given to a kit."""

    def __init__(self) -> None:
        self.warehouse, self.bank, self.carrier = Warehouse(), Bank(), Carrier()

    def provide(self, kit: Kit) -> None:
        kit.provide(Warehouse, self.warehouse)
        kit.provide(Bank, self.bank)
        kit.provide(Carrier, self.carrier)


# --- the order saga -----------------------------------------------------------------------------------

Ctx: TypeAlias = Context[PlaceOrder]


class Reservation(BaseModel):
    id: str


class Charge(BaseModel):
    id: str


class Shipment(BaseModel):
    tracking_id: str


order = Saga("order", version=1, input=PlaceOrder, key=lambda placed: placed.order_id)


@order.step(repeat=Repeat.SAFE)
async def reserve_stock(ctx: Ctx) -> Reservation:
    return Reservation(id=await ctx.use(Warehouse).reserve(ctx.input.order_id, ctx.idempotency_key))


@reserve_stock.undo
async def release_stock(ctx: Ctx, done: Reservation) -> None:
    await ctx.use(Warehouse).release(done.id)


@order.step(repeat=Repeat.ASK_FIRST)
async def charge_card(ctx: Ctx) -> Charge:
    charge = Charge(id=await ctx.use(Bank).charge(ctx.idempotency_key))
    ctx.emit(OrderCharged(order_id=ctx.input.order_id))
    return charge


@charge_card.probe(settle=SETTLE)
async def find_charge(ctx: Ctx) -> Probe[Charge]:
    found = await ctx.use(Bank).find(ctx.idempotency_key)
    return Absent() if found is None else Found(Charge(id=found))


@charge_card.undo
async def refund(ctx: Ctx, done: Charge) -> None:
    await ctx.use(Bank).refund(done.id)


@order.step(repeat=Repeat.SAFE, retry=Retry(attempts=3))
async def ship(ctx: Ctx) -> Shipment:
    return Shipment(tracking_id=await ctx.use(Carrier).ship(ctx.input.order_id, ctx.idempotency_key))


@ship.undo(retry=Retry(attempts=2))
async def cancel_shipment(ctx: Ctx, done: Shipment) -> None:
    await ctx.use(Carrier).cancel(done.tracking_id)


delivered = order.wait(
    "delivered",
    DeliveryReport,
    match=lambda view: view.result(ship).tracking_id,
    timeout=timedelta(days=3),
    on_timeout=Then.COMPENSATE,
)


@order.tx_step(on_failure=Then.PERSON)
async def close_order(ctx: Ctx, tx: Transaction) -> None:
    await tx.session.execute(insert(closed).values(order_id=ctx.input.order_id))


order.flow(reserve_stock, charge_card, ship, delivered, close_order)


def shop(*sagas: Saga[Any]) -> Milepost:
    """Return a service with an engine, the order saga, others if given, and a consumer of OrderPlaced."""
    service = Milepost(
        "kitshop", sagas=[order, *sagas], engine=create_async_engine(NOWHERE.sqlalchemy_url), settings=NOWHERE
    )

    @asynccontextmanager
    async def outside() -> AsyncIterator[Bank]:
        raise AssertionError("a kit must not open the service's own clients")
        yield

    service.provide(Bank, outside)
    billing = service.consumer("billing")

    @billing.on(OrderPlaced)
    async def book(event: OrderPlaced, tx: Transaction) -> None:
        await tx.session.execute(insert(ledger).values(order_id=event.order_id))

    return service


@asynccontextmanager
async def opened(*sagas: Saga[Any]) -> AsyncIterator[tuple[Kit, Companies, Milepost]]:
    """Open a kit on a shop, with the companies provided."""
    service = shop(*sagas)
    async with open_kit(service, prepare=make_tables) as kit:
        companies = Companies()
        companies.provide(kit)
        yield kit, companies, service


# --- looking ------------------------------------------------------------------------------------------


async def rows(service: Milepost, of: Table) -> list[str]:
    """Return the order ids in one of the user's tables, sorted."""
    async with service.transaction() as tx:
        return sorted((await tx.session.execute(select(of.c.order_id))).scalars())


async def step_row(service: Milepost, run: RunRef, name: str) -> dict[str, Any]:
    """Return state, attempt, code and probes of a step, as stored."""
    step = table(
        "step",
        *(column(part) for part in ("run_id", "name", "state", "attempt", "code", "probes", "fence")),
        schema="milepost",
    )
    async with service.transaction() as tx:
        found = (
            await tx.session.execute(select(step).where(step.c.run_id == run.id, step.c.name == name))
        ).one()
    return dict(found._mapping)


async def undone(service: Milepost, run: RunRef) -> list[str]:
    """Return the names of finished undos, in the order in which they finished."""
    step = table(
        "step",
        *(column(part) for part in ("run_id", "name", "state", "kind", "finish_no")),
        schema="milepost",
    )
    wanted = select(step.c.name).where(
        step.c.run_id == run.id, step.c.kind == "UNDO", step.c.state == StepState.COMPENSATED.value
    )
    async with service.transaction() as tx:
        return list((await tx.session.execute(wanted.order_by(step.c.finish_no))).scalars())
