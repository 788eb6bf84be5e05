"""A command's reply is the class that it was declared with, and silence has a policy."""

from datetime import timedelta

from base import Ctx, order
from milepost import Command, Event, Repeat


class Booked(Event, type="wrong.booked", topic="trucks"):
    plate: str


class Sold(Event, type="wrong.sold", topic="trucks"):
    price: int


class Book(Command[Booked], type="wrong.book", topic="trucks"):
    size: int


MINUTE = timedelta(minutes=1)
truck = order.command("truck", lambda v: Book(size=1), reply=Booked, timeout=MINUTE, repeat=Repeat.SAFE)
order.command("a", lambda v: Book(size=1), reply=Sold, timeout=MINUTE, repeat=Repeat.SAFE)  # expect: arg-type, return-value
order.command("b", lambda v: Book(size=1), reply=Booked, repeat=Repeat.SAFE)  # expect: call-arg
order.command("c", lambda v: Book(size=1), reply=Booked, timeout=MINUTE)  # expect: call-arg
order.timer("d", "tomorrow")  # expect: arg-type


@truck.undo  # expect: arg-type
async def cancel(ctx: Ctx, done: Sold) -> None: ...
