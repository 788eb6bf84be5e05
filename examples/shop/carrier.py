"""The carrier: it takes parcels over HTTP and reports deliveries to Kafka, in its own time, not always well.

Run it with `uvicorn milepost.examples.shop.carrier:api`; COMPANY_LEDGER and CARRIER_KAFKA are needed, CARRIER_TOPIC is
"deliveries" without it. It is another company: it writes plain CloudEvents with a plain producer and knows nothing of
Milepost.

A parcel with an address ends as the address says (`faults.at_address`), and that is reported as `carrier.parcel-ended`
with an outcome; one without is delivered, and reported as `carrier.delivered`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated

from aiokafka import AIOKafkaProducer
from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ..stage.company import Calls, ledger_path, refused
from .faults import CarrierFault, End, at_address, carrier_fault
from .ledger import Effect, Ledger

#: How long a parcel is on its way.
TRANSIT = timedelta(seconds=1)

#: What is booked when a parcel has come to its end.
ENDS = {End.DELIVERED: "deliver", End.RETURNED: "return", End.LOST: "lose"}

#: How often an end is reported; once if nothing is said.
COPIES = {CarrierFault.NEVER: 0, CarrierFault.TWICE: 2}

Key = Annotated[str, Header(alias="idempotency-key")]


class NewShipment(BaseModel):
    """A parcel as the shop hands it over."""

    order_id: str
    address: str = ""


class Reports:
    """Delivery reports: which are due, and sending them."""

    def __init__(self, ledger: Ledger, producer: AIOKafkaProducer) -> None:
        self._ledger = ledger
        self._producer = producer
        self._due: set[asyncio.Task[None]] = set()

    @property
    def due(self) -> int:
        """Parcels on their way."""
        return len(self._due)

    def later(self, parcel: Effect, *, copies: int) -> None:
        """End a parcel after the transit time, and report it so many times."""
        task = asyncio.create_task(self._after_transit(parcel, copies))
        self._due.add(task)
        task.add_done_callback(self._due.discard)

    async def now(self, parcel: Effect, *, copies: int = 1) -> None:
        """Book how a parcel ended, then report it."""
        end = at_address(parcel.subject)
        await self._ledger.book(ENDS[end], parcel.reference, parcel.order_id, subject=parcel.id)
        for _ in range(copies):
            await self._send(parcel, end)

    async def stop(self) -> None:
        """Forget what is due."""
        for task in self._due:
            task.cancel()
        await asyncio.gather(*self._due, return_exceptions=True)

    async def _after_transit(self, parcel: Effect, copies: int) -> None:
        await asyncio.sleep(TRANSIT.total_seconds())
        if not await self._ledger.find("cancel", subject=parcel.id):
            await self.now(parcel, copies=copies)

    async def _send(self, parcel: Effect, end: End) -> None:
        what = "parcel-ended" if parcel.subject else "delivered"
        headers = {
            "ce_specversion": "1.0",
            "ce_id": f"{parcel.order_id}:{parcel.id}:{what}",
            "ce_source": "https://carrier.example/parcels",
            "ce_type": f"carrier.{what}",
            "content-type": "application/json",
        }
        body = {"order_id": parcel.order_id, "tracking_id": tracking(parcel), "signed": True}
        await self._producer.send_and_wait(
            os.environ.get("CARRIER_TOPIC", "deliveries"),
            key=parcel.order_id.encode(),
            value=json.dumps({**body, "outcome": end} if parcel.subject else body).encode(),
            headers=[(name, value.encode()) for name, value in headers.items()],
        )


def tracking(parcel: Effect) -> str:
    """Return the number that is printed on the parcel."""
    return f"T-{parcel.order_id}-{parcel.id.rpartition('-')[2]}"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    ledger = Ledger(ledger_path(), once={"ship", "cancel", *ENDS.values()})
    producer = AIOKafkaProducer(bootstrap_servers=os.environ["CARRIER_KAFKA"], acks="all")
    await producer.start()
    app.state.ledger, app.state.reports = ledger, Reports(ledger, producer)
    yield
    await app.state.reports.stop()
    await producer.stop()
    ledger.close()


carrier = FastAPI(title="carrier", lifespan=_lifespan)
api = Calls(carrier)


@carrier.post("/shipments", status_code=201)
async def ship(body: NewShipment, key: Key) -> Response:
    """Take a parcel, once per key."""
    ledger: Ledger = carrier.state.ledger
    reports: Reports = carrier.state.reports
    fault = carrier_fault(body.order_id)
    if fault is CarrierFault.REFUSES or at_address(body.address) is End.REFUSED:
        return refused(409, "NO_ROUTE")
    parcel, new = await ledger.book("ship", key, body.order_id, subject=body.address)
    if new and fault is CarrierFault.EARLY:
        await reports.now(parcel)
    elif new and (body.address or fault is not CarrierFault.NEVER):
        reports.later(parcel, copies=COPIES.get(fault, 1))
    return JSONResponse({"number": tracking(parcel)}, status_code=201 if new else 200)


@carrier.post("/shipments/{number}/cancel", status_code=201)
async def cancel(number: str, key: Key) -> Response:
    """Call a parcel back, once per key; a delivered one is fetched from the customer."""
    ledger: Ledger = carrier.state.ledger
    found = await ledger.find("ship", number=number)
    if not found:
        return refused(409, "NO_SUCH_PARCEL")
    effect, new = await ledger.book("cancel", key, found[0].order_id, subject=found[0].id)
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)


@carrier.get("/shipments/{number}")
async def shipment(number: str) -> Response:
    """Tell where a parcel is."""
    ledger: Ledger = carrier.state.ledger
    found = await ledger.find("ship", number=number)
    if not found:
        return refused(404, "NO_SUCH_PARCEL")
    ended = [end for end, kind in ENDS.items() if await ledger.find(kind, reference=found[0].reference)]
    return JSONResponse({"number": number, "outcome": ended[0] if ended else ""})


@carrier.get("/due")
async def due() -> dict[str, int]:
    """Tell how many deliveries are on their way."""
    reports: Reports = carrier.state.reports
    return {"due": reports.due}
