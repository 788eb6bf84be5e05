"""What the shop takes in, and what it reads of the carrier."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Literal

from milepost import Event
from pydantic import BaseModel, Field

#: Beginning of the names of topics and groups, where several of these share a broker.
PREFIX = os.environ.get("ORDER_PREFIX", "")


class PlaceOrder(BaseModel):
    """An order as the API takes it; also the saga's input."""

    order_id: str = Field(min_length=1, max_length=60)
    sku: str = Field(min_length=1, max_length=60)
    amount: Decimal = Field(gt=0, max_digits=12, decimal_places=2)
    address: str = Field(min_length=1, max_length=200)
    gift: bool = False


class ParcelReport(
    Event,
    type="carrier.parcel-ended",
    version=1,
    topic=f"{PREFIX}deliveries",
    key="order_id",
    correlate="tracking_id",
):
    """Published by the carrier, another company, when a parcel has come to its end."""

    order_id: str
    tracking_id: str
    outcome: Literal["delivered", "returned", "lost"]


class Payback(BaseModel):
    """What a person is asked to approve: whose money goes back, how much, and why."""

    order_id: str
    amount: Decimal
    why: str
