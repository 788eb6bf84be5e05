"""What the wrong programs have in common; it is right."""

from typing import TypeAlias

from milepost import Context, Event, Milepost, Repeat, Saga
from pydantic import BaseModel


class Place(BaseModel):
    id: str


class Other(BaseModel):
    id: str


class Charge(BaseModel):
    id: str


class Parcel(BaseModel):
    number: str


class Delivered(Event, type="wrong.delivered", topic="deliveries", key="number", correlate="number"):
    number: str


Ctx: TypeAlias = Context[Place]
order = Saga("order", version=1, input=Place, key=lambda o: o.id)
other = Saga("other", version=1, input=Other, key=lambda o: o.id)
service = Milepost("wrong", sagas=[order, other])


@order.step(repeat=Repeat.ASK_FIRST)
async def charge(ctx: Ctx) -> Charge:
    return Charge(id="c")


@order.step(repeat=Repeat.SAFE)
async def ship(ctx: Ctx) -> Parcel:
    return Parcel(number="p")


@other.step(repeat=Repeat.SAFE)
async def elsewhere(ctx: Context[Other]) -> None: ...
