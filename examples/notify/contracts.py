"""What the service takes in, and what it makes of the provider's webhooks."""

from __future__ import annotations

import os
from typing import Literal

from milepost import Event
from pydantic import BaseModel, Field

#: Beginning of the names of topics and groups, where several of these share a broker.
PREFIX = os.environ.get("NOTIFY_PREFIX", "")


class Notify(BaseModel):
    """A job as the API takes it; also the saga's input.

    Attributes:
        id: The caller's idempotency key: asking twice under one id is one job.
    """

    id: str = Field(min_length=1, max_length=60)
    recipient: str = Field(min_length=3, max_length=200)
    template: Literal["welcome", "reminder"] = "welcome"
    name: str = Field(min_length=1, max_length=100)


class Reported(
    Event,
    type="notify.reported",
    version=1,
    topic=f"{PREFIX}notify-reports",
    key="message_id",
    correlate="message_id",
):
    """The provider has said what became of a message."""

    message_id: str
    outcome: Literal["delivered", "bounced"]
