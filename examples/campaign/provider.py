"""The provider: it sends every message that it is asked to send, does not always answer, and says no to some addresses.

Run it with `uvicorn milepost.examples.campaign.provider:api`; COMPANY_LEDGER names its ledger. It is another company:
it knows nothing of Milepost. Its client is that of the notify example.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.responses import Response

from ..notify.clients import PROVIDER_TIMEOUT
from ..notify.faults import SendFault, number_of
from ..notify.ledger import Ledger
from ..notify.provider import NewMessage
from ..stage.company import Calls, DroppedConnection, ledger_path, refused
from .book import BLOCKED, GONE, send_fault

#: How long an ordinary call takes, in seconds.
_TAKES = 0.2


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.ledger = Ledger(ledger_path())
    yield
    app.state.ledger.close()


provider = FastAPI(title="provider", lifespan=_lifespan)
api = Calls(provider)
_lost: set[str] = set()


@provider.post("/messages", status_code=201)
async def send(body: NewMessage) -> Response:
    """Send a message. A second call sends a second one: this provider cannot tell that it is the same."""
    ledger: Ledger = provider.state.ledger
    host = body.recipient.rpartition("@")[2]
    if host == GONE:
        return refused(422, "NO_SUCH_RECIPIENT")
    if host == BLOCKED and not _unblocked().exists():
        return refused(422, "HOST_BLOCKED")
    fault = send_fault(number_of(body.tag))
    if fault is SendFault.LOST and body.tag not in _lost:
        _lost.add(body.tag)
        return DroppedConnection()
    message = await ledger.send(body.reference, body.tag, body.recipient, body.text)
    if fault is SendFault.SILENT:
        return DroppedConnection()
    await asyncio.sleep(PROVIDER_TIMEOUT + 1 if fault is SendFault.LATE else _TAKES)
    return JSONResponse({"id": message.id}, status_code=201)


@provider.get("/messages")
async def messages(reference: str) -> list[dict[str, str]]:
    """Return the messages that were sent under a reference."""
    ledger: Ledger = provider.state.ledger
    return [{"id": message.id} for message in await ledger.find(reference=reference)]


@provider.post("/unblock")
async def unblock() -> dict[str, str]:
    """Deliver to every host from now on: somebody has telephoned."""
    _unblocked().touch()
    return {"status": "ok"}


def _unblocked() -> Path:
    """A file, since the provider may be killed, too."""
    return ledger_path().with_suffix(".unblocked")
