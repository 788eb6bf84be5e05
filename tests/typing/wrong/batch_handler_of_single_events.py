"""A handler of events together takes a sequence of them."""

from base import Delivered, service
from milepost import Transaction

consumer = service.consumer("wrong")


@consumer.on_batch(Delivered)  # expect: arg-type
async def one(event: Delivered, tx: Transaction) -> None: ...
