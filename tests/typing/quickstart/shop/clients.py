from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Self

import httpx


class Client:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        async with httpx.AsyncClient(base_url="http://localhost:8001", timeout=5) as http:
            yield cls(http)

    async def post(self, path: str, **body: str) -> str:
        answer = await self.http.post(path, json=body)
        answer.raise_for_status()
        return str(answer.json()["id"])


class Warehouse(Client):
    async def reserve(self, sku: str, *, key: str) -> str:
        return await self.post("/reservations", sku=sku, key=key)

    async def release(self, reservation: str) -> None:
        await self.post("/releases", reservation=reservation)

    async def pack(self, reservation: str) -> None:
        await self.post("/parcels", reservation=reservation)


class Payments(Client):
    async def charge(self, amount: Decimal, *, reference: str) -> str:
        return await self.post("/charges", amount=str(amount), reference=reference)

    async def find(self, *, reference: str) -> str | None:
        answer = await self.http.get("/charges", params={"reference": reference})
        return None if answer.status_code == 404 else str(answer.json()["id"])

    async def refund(self, charge: str, *, reference: str) -> None:
        await self.post("/refunds", charge=charge, reference=reference)

    async def invoice(self, charge: str) -> str:
        return await self.post("/invoices", charge=charge)


class Carrier(Client):
    async def ship(self, order: str, *, key: str) -> str:
        return await self.post("/shipments", order=order, key=key)

    async def is_delivered(self, number: str) -> bool:
        answer = await self.http.get(f"/shipments/{number}")
        return bool(answer.json()["delivered"])
