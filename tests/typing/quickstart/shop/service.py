from fastapi import FastAPI
from milepost import Milepost, Settings, Transaction, publish
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from shop.clients import Carrier, Payments, Warehouse
from shop.contracts import OrderPlaced, PlaceOrder
from shop.sagas.order import order
from shop.tables import LedgerRow, OrderRow

settings = Settings.from_env()  # MILEPOST_DATABASE_URL, MILEPOST_KAFKA
engine = create_async_engine(settings.sqlalchemy_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)

service = Milepost("shop", sagas=[order], engine=engine, settings=settings)
service.provide(Warehouse, Warehouse.connect)  # async context managers, opened in workers only
service.provide(Payments, Payments.connect)
service.provide(Carrier, Carrier.connect)

api = FastAPI()  # this process needs neither Kafka nor a worker


@api.post("/orders", status_code=202)
async def place_order(body: PlaceOrder) -> dict[str, str]:
    async with sessions.begin() as session:  # row, event and run: all or none
        session.add(OrderRow(id=body.order_id, state="NEW"))
        await publish(session, OrderPlaced(order_id=body.order_id, amount=body.amount))
        run = await service.start(session, order, body)
    return {"run": str(run.id)}


billing = service.consumer("billing")  # this name is the Kafka group and the inbox identity


@billing.on(OrderPlaced)
async def book(event: OrderPlaced, tx: Transaction) -> None:
    tx.session.add(LedgerRow(order_id=event.order_id, amount=event.amount))
