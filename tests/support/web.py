"""A real HTTP server on a real socket, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from tests.support.waiting import until


@asynccontextmanager
async def http_server(app: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve an ASGI app with uvicorn while the block lasts; gives a client for it."""
    given = {"host": "127.0.0.1", "port": 0, "log_level": "critical", "lifespan": "on", **options}
    server = uvicorn.Server(uvicorn.Config(app, **given))
    serving = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started or serving.done(), within=30, what="the HTTP server")
        if serving.done():
            serving.result()
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 30)
