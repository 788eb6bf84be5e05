"""What stand-ins for other companies have in common. Each is an application with a ledger of its own.

Environment: COMPANY_LEDGER names the ledger's file.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


def ledger_path() -> Path:
    """Return the file that COMPANY_LEDGER names."""
    return Path(os.environ["COMPANY_LEDGER"])


class Calls:
    """Counts the calls being answered right now, by caller: so the demo knows whom it may kill in the middle.

    Args:
        app: The company's application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET /calls; count every other POST while it lasts."""
        if scope["type"] == "http" and scope["path"] == "/calls":
            await JSONResponse(+self._open)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST":
            await self._counted(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = dict(scope["headers"]).get(b"user-agent", b"").decode("latin-1")
        self._open[caller] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[caller] -= 1


class DroppedConnection(Response):
    """Begins an answer and closes the connection instead of finishing it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise a body and end without it; the server then closes the connection."""
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"9")]})


def refused(status: int, code: str) -> JSONResponse:
    """Return a final no with a code of the company's own."""
    return JSONResponse({"code": code}, status_code=status)
