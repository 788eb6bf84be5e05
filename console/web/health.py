"""Whether the console lives, and whether it is ready: the only answers without an identity."""

from __future__ import annotations

import asyncio

import asyncpg
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from ...schemas.errors import ConnectError
from ...streams.database import CANNOT_CONNECT
from .guard import HEALTH
from .identity.store import Sql
from .parts import parts

router = APIRouter(include_in_schema=False)

#: How long the database may take, in seconds.
WITHIN = 3.0


@router.get(f"{HEALTH}live")
async def live() -> JSONResponse:
    """Say that the process answers."""
    return JSONResponse({"live": True})


@router.get(f"{HEALTH}ready")
async def ready(request: Request) -> JSONResponse:
    """Say whether the database answers and has Milepost's schema."""
    try:
        async with asyncio.timeout(WITHIN):
            await parts(request).database.pool.fetchval(Sql.ready)
    except (*CANNOT_CONNECT, ConnectError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return JSONResponse({"ready": False}, 503)
    return JSONResponse({"ready": True})
