"""The service's client of the provider: plain httpx; of Milepost it knows only the final no."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
from milepost import Refused
from pydantic_settings import BaseSettings, SettingsConfigDict

#: Longest wait for the provider's answer, in seconds. Beyond it nobody here knows whether the message was sent.
PROVIDER_TIMEOUT = 1.5


class Config(BaseSettings):
    """Where the provider answers, what its webhooks are signed with, and who we say we are: NOTIFY_PROVIDER_URL …"""

    model_config = SettingsConfigDict(env_prefix="NOTIFY_", extra="ignore", frozen=True)

    provider_url: str = "http://127.0.0.1:8001"
    secret: str = "whsec_bm90aWZ5LWV4YW1wbGUtc2VjcmV0"
    caller: str = "notify"


class Provider:
    """Sends every message that it is asked to send; can be asked for them by our reference."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        config = Config()
        headers = {"user-agent": config.caller}
        async with httpx.AsyncClient(
            base_url=config.provider_url, timeout=PROVIDER_TIMEOUT, headers=headers
        ) as http:
            yield cls(http)

    async def send(self, recipient: str, text: str, *, reference: str, tag: str) -> str:
        """Send a message; returns the provider's id of it.

        Raises:
            Refused: The provider does not send it.
            httpx.HTTPError: No answer came, so it may or may not have been sent.
        """
        body = {"recipient": recipient, "text": text, "reference": reference, "tag": tag}
        response = await self._http.post("/messages", json=body)
        if response.status_code == 422:
            raise Refused(response.json()["code"])
        return str(_answer(response)["id"])

    async def find(self, *, reference: str) -> str | None:
        """Look a message up by our reference; None when the provider knows of none."""
        found = _answer(await self._http.get("/messages", params={"reference": reference}))
        return str(found[0]["id"]) if found else None

    async def state(self, message_id: str) -> str | None:
        """Ask what became of a message: "accepted", "delivered", "bounced", or None when there is none."""
        response = await self._http.get(f"/messages/{message_id}")
        return None if response.status_code == 404 else str(_answer(response)["state"])


def _answer(response: httpx.Response) -> Any:
    response.raise_for_status()
    return response.json()
