"""A blind undo may receive None."""

from base import Charge, Ctx, charge


@charge.undo(blind=True)  # expect: arg-type
async def refund(ctx: Ctx, done: Charge) -> None: ...
