"""An application for `milepost serve` whose saga waits for what a webhook says."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from milepost import Event, Milepost, Repeat, Saga, StandardWebhooks, Then, WebhookRequest
from pydantic import BaseModel

from tests.support.hooks import SECRET, event_id

PREFIX = os.environ.get("HOOK_PREFIX", "hooks")


class Parcel(BaseModel):
    id: str


class Arrived(Event, type="hook.arrived", topic=f"{PREFIX}-arrivals", key="id", correlate="id"):
    id: str


parcel = Saga("parcel", version=1, input=Parcel, key=lambda p: p.id)
arrived = parcel.wait(
    "arrived", Arrived, match=lambda v: v.input.id, timeout=timedelta(days=3), on_timeout=Then.CANCEL
)


@parcel.step(repeat=Repeat.SAFE)
async def thank(ctx: Any) -> None: ...


parcel.flow(arrived, thank)


def to_event(request: WebhookRequest) -> Event | None:
    """What the carrier says."""
    return Arrived(id=request.json()["id"])


service = Milepost(PREFIX, sagas=[parcel])
carrier = service.webhook("carrier", verify=StandardWebhooks(SECRET), event_id=event_id, to_event=to_event)
