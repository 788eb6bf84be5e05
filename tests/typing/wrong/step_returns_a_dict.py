"""A result is a model or None, so that it can be stored and read back."""

from base import Ctx, order
from milepost import Repeat


@order.step(repeat=Repeat.SAFE)  # expect: type-var
async def pay(ctx: Ctx) -> dict[str, str]:
    return {"id": "c"}
