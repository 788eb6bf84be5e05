"""The shop: its web API, its saga and its billing consumer.

`milepost serve` runs the saga and the consumer, with MILEPOST_APP=milepost.examples.shop.service:service.
The API is an ordinary FastAPI application that needs neither Kafka nor a worker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from milepost import Milepost, Settings, Transaction, publish
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, get_tracer
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from .clients import Bank, Carrier, Warehouse
from .contracts import OrderPlaced, PlaceOrder
from .saga import order
from .tables import Base, LedgerRow, OrderRow
from .telemetry import exported_spans

settings = Settings.from_env()
engine = create_async_engine(settings.sqlalchemy_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)

service = Milepost("shop", sagas=[order], engine=engine, settings=settings)
service.provide(Warehouse, Warehouse.connect)
service.provide(Bank, Bank.connect)
service.provide(Carrier, Carrier.connect)

billing = service.consumer("billing")


@billing.on(OrderPlaced)
async def book(event: OrderPlaced, tx: Transaction) -> None:
    """Book an order, once: the row commits together with the mark that this event was applied."""
    tx.session.add(LedgerRow(order_id=event.order_id, amount=event.amount))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the shop's tables; export spans where OTEL_EXPORTER_OTLP_ENDPOINT says so."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    with exported_spans("shop-api"):
        yield
    await engine.dispose()


api = FastAPI(title="shop", lifespan=lifespan)


@api.get("/health")
async def health() -> dict[str, str]:
    """Tell that the API answers."""
    return {"status": "ok"}


@api.post("/orders", status_code=202)
async def place_order(body: PlaceOrder, request: Request) -> dict[str, str]:
    """Take an order: its row, its event and its run commit together or not at all."""
    with get_tracer("shop").start_as_current_span(
        "POST /orders", context=extract(request.headers), kind=SpanKind.SERVER
    ):
        try:
            async with sessions.begin() as session:
                session.add(OrderRow(id=body.order_id, amount=body.amount, state="NEW"))
                await publish(session, OrderPlaced(order_id=body.order_id, amount=body.amount))
                run = await service.start(session, order, body)
        except IntegrityError as error:
            raise HTTPException(409, f"order {body.order_id} is already there") from error
    return {"run": str(run.id)}
