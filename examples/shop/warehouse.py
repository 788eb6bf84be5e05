"""The warehouse: it dedupes every call on the idempotency key, so that a call may be repeated.

Run it with `uvicorn milepost.examples.shop.warehouse:api`; COMPANY_LEDGER names its ledger. WAREHOUSE_STOCK says how
many pieces there are of what, as JSON; of anything else there is enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ..stage.company import Calls, ledger_path, refused
from .ledger import Ledger, Limit, LimitReached

Key = Annotated[str, Header(alias="idempotency-key")]


class NewReservation(BaseModel):
    """A reservation as the shop asks for it."""

    order_id: str
    sku: str


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.ledger = Ledger(ledger_path(), once={"reserve", "release", "wrap", "pack"})
    app.state.stock = json.loads(os.environ.get("WAREHOUSE_STOCK", "{}"))
    yield
    app.state.ledger.close()


warehouse = FastAPI(title="warehouse", lifespan=_lifespan)
api = Calls(warehouse)


@warehouse.post("/reservations", status_code=201)
async def reserve(body: NewReservation, key: Key) -> Response:
    """Set one piece aside, if there is one: counting and booking are one transaction."""
    ledger: Ledger = warehouse.state.ledger
    stock: dict[str, int] = warehouse.state.stock
    try:
        effect, new = await ledger.book(
            "reserve", key, body.order_id, subject=body.sku, limit=Limit(stock.get(body.sku), back="release")
        )
    except LimitReached:
        return refused(409, "OUT_OF_STOCK")
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)


@warehouse.post("/reservations/{number}/release", status_code=201)
async def release(number: str, key: Key) -> Response:
    """Put a reserved piece back."""
    ledger: Ledger = warehouse.state.ledger
    found = await ledger.find("reserve", number=number)
    if not found:
        return refused(409, "NO_SUCH_RESERVATION")
    effect, new = await ledger.book("release", key, found[0].order_id, subject=number)
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)


@warehouse.post("/reservations/{number}/{work}", status_code=201)
async def prepare(number: str, work: Literal["wrap", "pack"], key: Key) -> Response:
    """Wrap or pack a reserved piece."""
    ledger: Ledger = warehouse.state.ledger
    found = await ledger.find("reserve", number=number)
    if not found:
        return refused(409, "NO_SUCH_RESERVATION")
    effect, new = await ledger.book(work, key, found[0].order_id, subject=number)
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)
