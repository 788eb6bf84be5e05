"""What the web processes of services have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from milepost import Milepost
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine


def service_api(title: str, service: Milepost, engine: AsyncEngine, tables: MetaData) -> FastAPI:
    """Return an application that makes its tables when it starts, and says at /health that it answers."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(tables.create_all)
        yield
        await service.close()
        await engine.dispose()

    api = FastAPI(title=title, lifespan=lifespan)

    @api.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return api
