"""So does an undo with options."""

from base import Ctx, Parcel, charge
from milepost import Retry


@charge.undo(retry=Retry(attempts=3))  # expect: arg-type
async def refund(ctx: Ctx, done: Parcel) -> None: ...
