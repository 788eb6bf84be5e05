"""The bank: it books every charge it is asked for, can be asked by reference, and does not always answer.

Run it with `uvicorn milepost.examples.shop.bank:api`; COMPANY_LEDGER names its ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ..stage.company import Calls, DroppedConnection, ledger_path, refused
from .clients import BANK_TIMEOUT
from .faults import BankFault, bank_fault
from .ledger import Ledger


class NewCharge(BaseModel):
    """A charge as the shop asks for it."""

    order_id: str
    amount: Decimal
    reference: str


class NewRefund(BaseModel):
    """A refund as the shop asks for it."""

    charge_id: str
    reference: str


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.ledger = Ledger(ledger_path(), once={"refund"})
    yield
    app.state.ledger.close()


bank = FastAPI(title="bank", lifespan=_lifespan)
api = Calls(bank)
_lost: set[str] = set()


@bank.post("/charges", status_code=201)
async def charge(body: NewCharge) -> Response:
    """Book a charge. A second call books a second charge: this bank cannot tell that it is the same one."""
    ledger: Ledger = bank.state.ledger
    fault = bank_fault(body.order_id)
    if fault is BankFault.DECLINES:
        return refused(402, "CARD_DECLINED")
    if fault is BankFault.LOST and body.order_id not in _lost:
        _lost.add(body.order_id)
        return DroppedConnection()
    first = not await ledger.find("charge", reference=body.reference)
    effect, _ = await ledger.book("charge", body.reference, body.order_id, amount=str(body.amount))
    if first and fault is BankFault.SILENT:
        return DroppedConnection()
    if first and fault is BankFault.LATE:
        await asyncio.sleep(BANK_TIMEOUT + 1)
    return JSONResponse({"id": effect.id}, status_code=201)


@bank.get("/charges")
async def charges(reference: str) -> list[dict[str, str]]:
    """Return the charges booked under a reference."""
    ledger: Ledger = bank.state.ledger
    return [
        {"id": effect.id, "amount": effect.amount}
        for effect in await ledger.find("charge", reference=reference)
    ]


@bank.post("/refunds", status_code=201)
async def refund(body: NewRefund) -> Response:
    """Pay a charge back; the same reference is paid once."""
    ledger: Ledger = bank.state.ledger
    found = await ledger.find("charge", number=body.charge_id)
    if not found:
        return refused(409, "NO_SUCH_CHARGE")
    effect, new = await ledger.book(
        "refund", body.reference, found[0].order_id, subject=body.charge_id, amount=found[0].amount
    )
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)
