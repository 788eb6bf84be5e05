"""So is the result of a transactional step."""

from base import Ctx, order
from milepost import Transaction


@order.tx_step()  # expect: type-var
async def pay(ctx: Ctx, tx: Transaction) -> dict[str, str]:
    return {"id": "c"}
