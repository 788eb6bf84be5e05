"""The notification service: its web API, its webhook and its saga.

`milepost serve` runs the saga, with MILEPOST_APP=milepost.examples.notify.service:service. The API needs neither
Kafka nor a worker.
"""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from milepost import Event, Milepost, Settings, StandardWebhooks, StateError, WebhookRequest
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from starlette.routing import Route

from ..stage.web import service_api
from .clients import Config, Provider
from .contracts import PREFIX, Notify, Reported
from .saga import notification
from .tables import Base, NotificationRow

settings = Settings.from_env()
engine = create_async_engine(settings.sqlalchemy_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)

service = Milepost(f"{PREFIX}notify", sagas=[notification], engine=engine, settings=settings)
service.provide(Provider, Provider.connect)


def read_report(hook: WebhookRequest) -> Event | None:
    """Say what a webhook of the provider means."""
    body: dict[str, Any] = hook.json()
    match body["type"]:
        case "message.delivered":
            return Reported(message_id=body["message"], outcome="delivered")
        case "message.bounced":
            return Reported(message_id=body["message"], outcome="bounced")
        case _:
            return None  # means nothing here: kept as IGNORED


provider_hook = service.webhook(
    "provider",
    verify=StandardWebhooks(Config().secret),
    event_id=lambda hook: hook.headers["webhook-id"],
    to_event=read_report,
)

api = service_api("notify", service, engine, Base.metadata)
api.routes.append(Route("/hooks/provider", provider_hook, methods=["POST"]))


@api.post("/notifications", status_code=202)
async def notify(body: Notify) -> dict[str, str]:
    """Take a job: its row and its run commit together. The same job again is the same run; another one is 409."""
    row = {"id": body.id, "recipient": body.recipient, "state": "QUEUED"}
    try:
        async with sessions.begin() as session:
            await session.execute(insert(NotificationRow).values(row).on_conflict_do_nothing())
            run = await service.start(session, notification, body)
    except StateError as error:
        raise HTTPException(409, str(error)) from error
    return {"run": str(run.id)}
