"""A console of the test's own process, on a port that a browser reaches."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from tests.support.consoleweb import Web
from tests.support.waiting import until


@asynccontextmanager
async def listening(web: Web) -> AsyncIterator[Web]:
    """Serve a console on a free port while the block lasts; `web.base` is its address."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(web.app, lifespan="off", log_level="warning"))
    task = asyncio.create_task(server.serve([place]))
    web.base = f"http://127.0.0.1:{place.getsockname()[1]}"
    try:
        await until(lambda: server.started, what="the console listening")
        yield web
    finally:
        server.force_exit = server.should_exit = True
        await task
