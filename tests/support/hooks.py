"""A carrier that sends webhooks, and a service that takes them under a real FastAPI app."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
from fastapi import FastAPI
from milepost import Event, Milepost, Refused, StandardWebhooks, WebhookRequest
from milepost.consumers.webhook_work import WebhookWork
from milepost.schemas.ids import ManualClock
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from standardwebhooks.webhooks import Webhook

from tests.support.engine import settings_for
from tests.support.web import http_server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Delivered(Event, type="hook.delivered", version=1, topic="hook-deliveries", key="id", correlate="id"):
    id: str


def to_event(request: WebhookRequest) -> Event | None:
    """Delivered when it says so; other kinds mean nothing, and some are trouble."""
    body = request.json()
    if body["type"] == "refused":
        raise Refused("NOT_OURS", "another shop's parcel")
    if body["type"] == "trouble":
        raise LookupError("cannot say")
    if body["type"] == "timeout":
        raise TimeoutError("the user's own")
    return Delivered(id=body["id"]) if body["type"] == "delivered" else None


def event_id(request: WebhookRequest) -> str:
    """The id of Standard Webhooks."""
    return request.headers["webhook-id"]


def tenant_of(request: WebhookRequest) -> str:
    """The last part of the path."""
    return request.path.rstrip("/").rpartition("/carrier")[2].strip("/")


def service_for(settings: Settings, *, name: str = "hooks", **options: Any) -> tuple[Milepost, FastAPI]:
    """A service with the webhook `carrier`, mounted in a FastAPI app."""
    service = Milepost(name, settings=settings)
    given: dict[str, Any] = {
        "verify": StandardWebhooks(SECRET),
        "event_id": event_id,
        "to_event": to_event,
        "tenant": tenant_of,
        **options,
    }
    api = FastAPI()
    api.mount("/hooks/carrier", service.webhook("carrier", **given))

    @api.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return service, api


def sent(event: str, body: bytes, at: datetime = NOW) -> dict[str, str]:
    """Headers of a genuine webhook."""
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(event, at, body.decode()),
    }


@dataclass
class Hooks:
    """A service under HTTP, its database, and the carrier's side."""

    service: Milepost
    client: httpx.AsyncClient
    pool: asyncpg.Pool[Any]
    clock: ManualClock
    work: WebhookWork
    answers: list[int] = field(default_factory=list)

    async def send(
        self,
        event: str,
        kind: str = "delivered",
        *,
        tenant: str = "",
        body: bytes | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Send a webhook as the carrier does."""
        content = json.dumps({"type": kind, "id": f"p-{event}"}).encode() if body is None else body
        signed = sent(event, content, self.clock.now()) | {n.replace("_", "-"): v for n, v in headers.items()}
        path = f"/hooks/carrier/{tenant}"
        return await self.client.post(path, content=content, headers=signed)

    async def rows(
        self, query: str = "SELECT * FROM milepost.webhook ORDER BY received_at"
    ) -> list[dict[str, Any]]:
        """Return rows."""
        return [dict(row) for row in await self.pool.fetch(query)]

    async def states(self) -> list[str]:
        """Return the states of all webhooks, the oldest first."""
        return [row["state"] for row in await self.rows()]

    async def published(self) -> list[str]:
        """Return the parcels of the events that were published."""
        rows = await self.rows("SELECT payload FROM milepost.outbox ORDER BY seq")
        return [json.loads(row["payload"])["id"] for row in rows]


@asynccontextmanager
async def hooks(
    url: str,
    *,
    work: Callable[..., WebhookWork] = WebhookWork,
    lease: timedelta = timedelta(seconds=30),
    **options: Any,
) -> AsyncIterator[Hooks]:
    """Serve it on a socket while the block lasts."""
    service, api = service_for(settings_for(url), **options)
    clock = ManualClock(NOW)
    service.clock = clock
    database = Database(service.settings)
    await database.open()
    try:
        async with http_server(api) as client:
            yield Hooks(service, client, database.pool, clock, work(service, database.pool, lease=lease))
    finally:
        await service.close()
        await database.close()
