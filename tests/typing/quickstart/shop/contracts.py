from decimal import Decimal

from milepost import Event
from pydantic import BaseModel


class PlaceOrder(BaseModel):
    order_id: str
    sku: str
    amount: Decimal


class OrderPlaced(Event, type="shop.order-placed", version=1, topic="orders", key="order_id"):
    order_id: str
    amount: Decimal


class DeliveryReport(
    Event, type="carrier.delivered", version=1, topic="deliveries", key="order_id", correlate="tracking_id"
):
    order_id: str
    tracking_id: str
