"""The shop: its web API and its saga.

`milepost serve` runs the saga, with MILEPOST_APP=milepost.examples.order.service:service. The API needs neither Kafka
nor a worker.
"""

from __future__ import annotations

from fastapi import HTTPException
from milepost import Milepost, Settings, StateError
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from ..shop.clients import Bank
from ..stage.web import service_api
from .clients import Carrier, Mailer, Warehouse
from .contracts import PREFIX, PlaceOrder
from .saga import order
from .tables import Base, OrderRow

settings = Settings.from_env()
engine = create_async_engine(settings.sqlalchemy_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)

service = Milepost(f"{PREFIX}order", sagas=[order], engine=engine, settings=settings)
service.provide(Warehouse, Warehouse.connect)
service.provide(Bank, Bank.connect)
service.provide(Carrier, Carrier.connect)
service.provide(Mailer, Mailer.connect)

api = service_api("order", service, engine, Base.metadata)


@api.post("/orders", status_code=202)
async def place_order(body: PlaceOrder) -> dict[str, str]:
    """Take an order: its row and its run commit together. The same order again is the same run; another one is 409."""
    row = {"id": body.order_id, "state": "NEW"}
    try:
        async with sessions.begin() as session:
            await session.execute(insert(OrderRow).values(row).on_conflict_do_nothing())
            run = await service.start(session, order, body)
    except StateError as error:
        raise HTTPException(409, str(error)) from error
    return {"run": str(run.id)}
