"""A probe answers for its own step."""

from base import Ctx, Parcel, charge
from milepost import Found, Probe


@charge.probe  # expect: arg-type
async def find(ctx: Ctx) -> Probe[Parcel]:
    return Found(Parcel(number="p"))
