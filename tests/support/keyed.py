"""A FastAPI app behind the idempotency middleware, whose work is a line in the bank's ledger."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import StreamingResponse
from milepost import IdempotencyMiddleware, Milepost
from milepost.streams.database import Database
from pydantic import BaseModel

from tests.support.bank import Bank
from tests.support.engine import settings_for
from tests.support.web import http_server


class Payment(BaseModel):
    """What is posted."""

    amount: int
    how: str = "well"


@dataclass
class Shop:
    """An app, its bank and a client.

    Attributes:
        go_on: What slow payments wait for.
        begun: Set when a slow payment has begun.
    """

    service: Milepost
    bank: Bank
    pool: asyncpg.Pool[Any]
    client: httpx.AsyncClient = field(init=False)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> FastAPI:
        """The app without the middleware."""
        api = FastAPI()

        @api.post("/payments", status_code=201)
        @api.patch("/payments")
        @api.get("/payments")
        async def pay(payment: Payment, response: Response) -> dict[str, Any]:
            die_at(payment.how, "before")
            await self.bank.note("effect", payment.how, payment.amount)
            die_at(payment.how, "after")
            if payment.how == "slowly":
                self.begun.set()
                await self.go_on.wait()
            if payment.how == "raising":
                raise RuntimeError("a defect")
            if payment.how.isdigit():
                raise HTTPException(int(payment.how), "said so")
            count = await self.bank.count("effect")
            response.headers["Location"] = f"/payments/{count}"
            response.set_cookie("session", "s3cret")
            return {"number": count, "amount": payment.amount}

        @api.post("/streams")
        async def stream(payment: Payment) -> StreamingResponse:
            await self.bank.note("effect", "stream", payment.amount)

            async def parts() -> AsyncIterator[bytes]:
                for _ in range(payment.amount):
                    yield b"x" * 100

            return StreamingResponse(parts(), media_type="text/plain")

        return api

    async def post(
        self, key: str | None, amount: int = 1, how: str = "well", *, path: str = "/payments", **more: str
    ) -> httpx.Response:
        """Post a payment."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        headers |= {"Idempotency-Key": key} if key is not None else {}
        return await self.client.post(path, json={"amount": amount, "how": how}, headers=headers)

    async def states(self) -> list[tuple[str, str | None]]:
        """Return states and codes of all records."""
        rows = await self.pool.fetch("SELECT state, code FROM milepost.operation ORDER BY created_at")
        return [(row["state"], row["code"]) for row in rows]


def die_at(position: str, here: str) -> None:
    """Kill this process if this is where it is to die."""
    if position == here:
        os.kill(os.getpid(), signal.SIGKILL)


def tenant_of(scope: Any) -> str:
    """The tenant that the (trusted, in this test) header names."""
    return next((value.decode() for name, value in scope["headers"] if name == b"x-tenant"), "")


@asynccontextmanager
async def keyed(url: str, *, lease: Any = None, **options: Any) -> AsyncIterator[Shop]:
    """Serve the app on a socket while the block lasts."""
    settings = settings_for(url, **({"lease": lease} if lease is not None else {}))
    service, database = Milepost("shop", settings=settings), Database(settings)
    await database.open()
    shop = Shop(service, Bank(database.pool, dedupes=False), database.pool)
    await shop.bank.open()
    api = shop.app()
    api.add_middleware(IdempotencyMiddleware, service=service, tenant=tenant_of, **options)
    try:
        async with http_server(api) as client:
            shop.client = client
            yield shop
    finally:
        await service.close()
        await database.close()
