"""An undo receives its own step's result."""

from base import Ctx, Parcel, charge


@charge.undo  # expect: arg-type
async def refund(ctx: Ctx, done: Parcel) -> None: ...
