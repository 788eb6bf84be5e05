"""The provider: it sends every message that it is asked to send, does not always answer, and reports by webhook.

Run it with `uvicorn milepost.examples.notify.provider:api`; COMPANY_LEDGER, NOTIFY_HOOK_URL and NOTIFY_SECRET are
needed. It is another company: it knows nothing of Milepost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from ..stage.company import Calls, DroppedConnection, ledger_path, refused
from .clients import PROVIDER_TIMEOUT
from .faults import HookFault, SendFault, hook_fault, number_of, send_fault
from .hooks import Hooks
from .ledger import Ledger, Message

#: How long an ordinary call takes, in seconds: the n-th of four.
_TAKES = (0.05, 0.1, 0.2, 0.4)


class NewMessage(BaseModel):
    """A message as the service asks for it."""

    recipient: str
    text: str
    reference: str
    tag: str


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.ledger = Ledger(ledger_path())
    app.state.hooks = Hooks(app.state.ledger, os.environ["NOTIFY_HOOK_URL"], os.environ["NOTIFY_SECRET"])
    yield
    await app.state.hooks.stop()
    app.state.ledger.close()


provider = FastAPI(title="provider", lifespan=_lifespan)
api = Calls(provider)
_lost: set[str] = set()


@provider.post("/messages", status_code=201)
async def send(body: NewMessage) -> Response:
    """Send a message. A second call sends a second one: this provider cannot tell that it is the same."""
    ledger: Ledger = provider.state.ledger
    fault = send_fault(body.tag)
    if fault is SendFault.REFUSES:
        return refused(422, "NO_SUCH_RECIPIENT")
    if fault is SendFault.LOST and body.tag not in _lost:
        _lost.add(body.tag)
        return DroppedConnection()
    first = not await ledger.find(reference=body.reference)
    message = await ledger.send(body.reference, body.tag, body.recipient, body.text)
    await _report(message)
    if first and fault is SendFault.SILENT:
        return DroppedConnection()
    slow = first and fault is SendFault.LATE
    await asyncio.sleep(PROVIDER_TIMEOUT + 1 if slow else _TAKES[number_of(body.tag) % 4])
    return JSONResponse(_shown(message), status_code=201)


async def _report(message: Message) -> None:
    hooks: Hooks = provider.state.hooks
    if hook_fault(message.tag) is HookFault.EARLY:
        await hooks.now(message)
    else:
        hooks.later(message)


@provider.get("/messages")
async def messages(reference: str) -> list[dict[str, str]]:
    """Return the messages that were sent under a reference."""
    ledger: Ledger = provider.state.ledger
    return [_shown(message) for message in await ledger.find(reference=reference)]


@provider.get("/messages/{id}")
async def message(id: str) -> Response:
    """Tell what became of a message."""
    ledger: Ledger = provider.state.ledger
    digits = id.rpartition("-")[2]
    found = await ledger.find(n=int(digits)) if digits.isdecimal() else []
    return JSONResponse(_shown(found[0])) if found else refused(404, "NO_SUCH_MESSAGE")


@provider.get("/due")
async def due() -> dict[str, int]:
    """Tell how many messages are on their way, or not yet reported."""
    hooks: Hooks = provider.state.hooks
    return {"due": hooks.due}


def _shown(message: Message) -> dict[str, str]:
    return {"id": message.id, "state": message.state, "recipient": message.recipient}
