"""Nobody can guess whether a call may be repeated."""

from base import Charge, Ctx, order


@order.step()  # expect: call-arg
async def pay(ctx: Ctx) -> Charge:
    return Charge(id="c")
