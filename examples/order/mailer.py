"""The mailer: it dedupes on the idempotency key, and does not always answer.

Run it with `uvicorn milepost.examples.order.mailer:api`; COMPANY_LEDGER names its ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ..shop.faults import number_of
from ..shop.ledger import Ledger
from ..stage.company import Calls, DroppedConnection, ledger_path

Key = Annotated[str, Header(alias="idempotency-key")]

#: Of every so many orders the answer to the first call about one is lost.
SILENT_EVERY = 5


class NewLetter(BaseModel):
    """A letter as the shop asks for it."""

    order_id: str
    letter: str


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.ledger = Ledger(ledger_path(), once={"letter"})
    yield
    app.state.ledger.close()


mailer = FastAPI(title="mailer", lifespan=_lifespan)
api = Calls(mailer)


@mailer.post("/letters", status_code=201)
async def write(body: NewLetter, key: Key) -> Response:
    """Send a letter, once per key."""
    ledger: Ledger = mailer.state.ledger
    effect, new = await ledger.book("letter", key, body.order_id, subject=body.letter)
    if new and number_of(body.order_id) % SILENT_EVERY == 0:
        return DroppedConnection()
    return JSONResponse({"id": effect.id}, status_code=201 if new else 200)
