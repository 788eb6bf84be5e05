"""What the shop takes in, what it publishes, and what it reads of the carrier."""

from __future__ import annotations

from decimal import Decimal

from milepost import Event
from pydantic import BaseModel, Field


class PlaceOrder(BaseModel):
    """An order as the shop's API takes it; also the saga's input."""

    order_id: str = Field(min_length=1, max_length=60)
    sku: str = Field(min_length=1, max_length=60)
    amount: Decimal = Field(gt=0, max_digits=12, decimal_places=2)


class OrderPlaced(Event, type="shop.order-placed", version=1, topic="orders", key="order_id"):
    """Published with the order's row."""

    order_id: str
    amount: Decimal


class DeliveryReport(
    Event, type="carrier.delivered", version=1, topic="deliveries", key="order_id", correlate="tracking_id"
):
    """Published by the carrier, another company; the shop reads only these two fields of it."""

    order_id: str
    tracking_id: str
