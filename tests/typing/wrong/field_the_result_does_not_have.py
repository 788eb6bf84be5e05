"""Results are typed."""

from base import Charge, Ctx, order, ship
from milepost import Repeat


@order.step(repeat=Repeat.SAFE)
async def invoice(ctx: Ctx) -> Charge:
    return Charge(id=ctx.result(ship).weight)  # expect: attr-defined
