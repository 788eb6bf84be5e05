"""Publish and start take the open transaction first."""

from base import Delivered, Place, order, service
from milepost import publish


async def tell() -> None:
    await publish(Delivered(number="p"))  # expect: arg-type
    await service.start(order, Place(id="o"))  # expect: call-arg, arg-type, arg-type
