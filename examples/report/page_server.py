"""A stand-in for Notion's API: it makes a page for every call, can be asked, and does not always answer.

Run it with `uvicorn milepost.examples.report.page_server:api`; COMPANY_LEDGER names its book, PAGES_TOKEN the token.
PAGES_SCRIPT says by commas how calls for a page go, one after the other: ok, 503, lost (nothing is made, and the
connection drops), silent (made, and the connection drops), hold (made, and the answer does not come); then ok.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from ..stage.company import Calls, DroppedConnection, ledger_path
from .book import Book, Entry

Token = Annotated[str, Header(alias="authorization")]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.book = Book(ledger_path())
    yield
    app.state.book.close()


pages = FastAPI(title="pages", lifespan=_lifespan)
api = Calls(pages)


@pages.post("/v1/pages")
async def make(body: dict[str, Any], request: Request, token: Token = "") -> Response:
    """Make a page. A second call makes a second one."""
    if refused := _refused(token):
        return refused
    book: Book = pages.state.book
    script = os.environ.get("PAGES_SCRIPT", "").split(",")
    before = len(book.entries("call"))
    how = (script[before] if before < len(script) else "") or "ok"
    book.write("call", how)
    if how == "503":
        return JSONResponse({"object": "error", "code": "service_unavailable"}, status_code=503)
    if how == "lost":
        return DroppedConnection()
    external = body["properties"]["External ID"]["rich_text"][0]["text"]["content"]
    book.write("page", external, json.dumps(body["children"]))
    if how == "silent":
        return DroppedConnection()
    if how == "hold":
        await request.receive()  # the next thing that comes is that the caller is gone
    return JSONResponse(_shown(book.entries("page", external)[-1]))


@pages.post("/v1/databases/{database}/query")
async def query(database: str, body: dict[str, Any], token: Token = "") -> Response:
    """Find pages by their external id."""
    if refused := _refused(token):
        return refused
    book: Book = pages.state.book
    found = book.entries("page", body["filter"]["rich_text"]["equals"])
    return JSONResponse({"object": "list", "results": [_shown(entry) for entry in found], "has_more": False})


def _refused(token: str) -> Response | None:
    if token == f"Bearer {os.environ['PAGES_TOKEN']}":
        return None
    return JSONResponse({"object": "error", "code": "unauthorized"}, status_code=401)


def _shown(entry: Entry) -> dict[str, str]:
    return {"object": "page", "id": f"page-{entry.n}", "url": f"https://pages.example/page-{entry.n}"}
