"""A wait cannot FAIL at its timeout, and a step cannot CONTINUE after its last try."""

from datetime import timedelta

from base import Charge, Ctx, Delivered, order
from milepost import Repeat, Then

order.wait(
    "delivered",
    Delivered,
    match=lambda v: v.input.id,
    timeout=timedelta(days=1),
    on_timeout=Then.FAIL,  # expect: arg-type
)


@order.step(repeat=Repeat.SAFE, on_failure=Then.CONTINUE)  # expect: arg-type
async def pay(ctx: Ctx) -> Charge:
    return Charge(id="c")
