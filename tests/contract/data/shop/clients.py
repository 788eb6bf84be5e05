"""The quickstart's own clients, in memory: they know nothing of Milepost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Self


class Client:
    """What the three have in common."""

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        yield cls()


class Warehouse(Client):
    def __init__(self) -> None:
        self.reserved: dict[str, str] = {}

    async def reserve(self, sku: str, *, key: str) -> str:
        return self.reserved.setdefault(key, f"{sku}-{len(self.reserved)}")

    async def release(self, reservation: str) -> None:
        self.reserved = {key: known for key, known in self.reserved.items() if known != reservation}


class Payments(Client):
    async def charge(self, amount: Decimal, *, reference: str) -> str:
        raise AssertionError("tests provide their own")

    async def find(self, *, reference: str) -> str | None:
        raise AssertionError("tests provide their own")

    async def refund(self, charge: str, *, reference: str) -> None:
        raise AssertionError("tests provide their own")


class Carrier(Client):
    def __init__(self) -> None:
        self.shipped: dict[str, str] = {}

    async def ship(self, order_id: str, *, key: str) -> str:
        return self.shipped.setdefault(key, f"T-{order_id}")

    async def is_delivered(self, tracking_id: str) -> bool:
        return False
