"""A handler takes the event that it is registered for."""

from base import Delivered, Other, service
from milepost import Transaction

billing = service.consumer("billing")


@billing.on(Delivered)  # expect: arg-type
async def book(event: Other, tx: Transaction) -> None: ...
