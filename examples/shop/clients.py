"""The shop's clients of the other companies: plain httpx; of Milepost they know only the final no."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, Self

import httpx
from milepost import Refused
from pydantic_settings import BaseSettings, SettingsConfigDict

#: Longest wait for the bank's answer, in seconds. Beyond it nobody here knows whether the card was charged.
BANK_TIMEOUT = 1.5


class Addresses(BaseSettings):
    """Where the other companies answer: SHOP_BANK_URL and so on, and who we say we are to them."""

    model_config = SettingsConfigDict(env_prefix="SHOP_", extra="ignore", frozen=True)

    bank_url: str = "http://127.0.0.1:8001"
    warehouse_url: str = "http://127.0.0.1:8002"
    carrier_url: str = "http://127.0.0.1:8003"
    caller: str = "shop"


class Client:
    """A client of one company."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def _opened(cls, url: str, timeout: float) -> AsyncIterator[Self]:
        headers = {"user-agent": Addresses().caller}
        async with httpx.AsyncClient(base_url=url, timeout=timeout, headers=headers) as http:
            yield cls(http)

    async def _post(self, path: str, body: dict[str, str], *, key: str | None = None) -> Any:
        headers = {"idempotency-key": key} if key else {}
        return _answer(await self._http.post(path, json=body, headers=headers))

    async def _get(self, path: str, **params: str) -> Any:
        return _answer(await self._http.get(path, params=params))


def _answer(response: httpx.Response) -> Any:
    """Return the body; 402 and 409 are a final no with the other side's own code."""
    if response.status_code in (402, 409):
        raise Refused(response.json()["code"])
    response.raise_for_status()
    return response.json()


class Warehouse(Client):
    """Dedupes on the idempotency key, so every call may be repeated."""

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        async with cls._opened(Addresses().warehouse_url, timeout=5) as client:
            yield client

    async def reserve(self, order_id: str, sku: str, *, key: str) -> str:
        """Reserve one piece; returns the reservation's id."""
        answer = await self._post("/reservations", {"order_id": order_id, "sku": sku}, key=key)
        return str(answer["id"])

    async def release(self, reservation_id: str, *, key: str) -> None:
        """Give a reservation back."""
        await self._post(f"/reservations/{reservation_id}/release", {}, key=key)


class Bank(Client):
    """Books every charge that it is asked for; only refunds are deduped, by their reference."""

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        async with cls._opened(Addresses().bank_url, timeout=BANK_TIMEOUT) as client:
            yield client

    async def charge(self, order_id: str, amount: Decimal, *, reference: str) -> str:
        """Charge the card; returns the charge's id.

        Raises:
            Refused: The bank declined.
            httpx.HTTPError: No answer came, so the card may or may not have been charged.
        """
        body = {"order_id": order_id, "amount": str(amount), "reference": reference}
        return str((await self._post("/charges", body))["id"])

    async def find_charge(self, *, reference: str) -> str | None:
        """Look up a charge by our reference; None when the bank knows of none."""
        found = await self._get("/charges", reference=reference)
        return str(found[0]["id"]) if found else None

    async def refund(self, charge_id: str, *, reference: str) -> None:
        """Pay a charge back, once per reference."""
        await self._post("/refunds", {"charge_id": charge_id, "reference": reference})


class Carrier(Client):
    """Dedupes on the idempotency key; reports deliveries later, as events."""

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        async with cls._opened(Addresses().carrier_url, timeout=5) as client:
            yield client

    async def ship(self, order_id: str, *, key: str) -> str:
        """Hand a parcel over; returns its tracking number.

        Raises:
            Refused: The carrier does not go there.
        """
        return str((await self._post("/shipments", {"order_id": order_id}, key=key))["number"])

    async def cancel(self, number: str, *, key: str) -> None:
        """Call a parcel back."""
        await self._post(f"/shipments/{number}/cancel", {}, key=key)
