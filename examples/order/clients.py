"""The shop's clients: those of the demo, with what an order in full needs besides, and the mailer's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Self

from pydantic_settings import BaseSettings, SettingsConfigDict

from ..shop import clients

#: What a customer may be told at the end.
Letter = Literal["delivered", "refunded", "kept", "cancelled"]


class MailerAddress(BaseSettings):
    """Where the mailer answers: SHOP_MAILER_URL."""

    model_config = SettingsConfigDict(env_prefix="SHOP_", extra="ignore", frozen=True)

    mailer_url: str = "http://127.0.0.1:8004"


class Warehouse(clients.Warehouse):
    """Dedupes on the idempotency key, and counts its stock itself."""

    async def wrap(self, reservation_id: str, *, key: str) -> None:
        """Have a reserved piece wrapped as a gift."""
        await self._post(f"/reservations/{reservation_id}/wrap", {}, key=key)

    async def pack(self, reservation_id: str, *, key: str) -> None:
        """Have a reserved piece packed."""
        await self._post(f"/reservations/{reservation_id}/pack", {}, key=key)


class Carrier(clients.Carrier):
    """Dedupes on the idempotency key; reports what became of a parcel later, as an event, and can be asked."""

    async def send(self, order_id: str, address: str, *, key: str) -> str:
        """Hand a parcel over; returns its tracking number.

        Raises:
            Refused: The carrier does not go there.
        """
        body = {"order_id": order_id, "address": address}
        return str((await self._post("/shipments", body, key=key))["number"])

    async def outcome(self, number: str) -> str:
        """Ask what became of a parcel: "delivered", "returned", "lost", or "" while it is on its way."""
        return str((await self._get(f"/shipments/{number}"))["outcome"])


class Mailer(clients.Client):
    """Sends letters; dedupes on the idempotency key."""

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        async with cls._opened(MailerAddress().mailer_url, timeout=5) as client:
            yield client

    async def write(self, order_id: str, letter: Letter, *, key: str) -> None:
        """Tell the customer how the order has ended."""
        await self._post("/letters", {"order_id": order_id, "letter": letter}, key=key)
