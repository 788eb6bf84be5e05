"""A map leads from the old saga's input and steps to the new one's, and an upcaster from model to model."""

from base import Place
from milepost import Context, Repeat, Saga
from pydantic import BaseModel


class Wider(BaseModel):
    id: str
    floor: int


old = Saga("place", version=1, input=Place, key=lambda o: o.id)
new = Saga("place", version=2, input=Wider, key=lambda o: o.id)


@old.step(repeat=Repeat.SAFE)
async def first(ctx: Context[Place]) -> None: ...


@new.step(repeat=Repeat.SAFE)
async def second(ctx: Context[Wider]) -> None: ...


@new.upcast_input(from_version=1)
def right(was: Place) -> Wider:
    return Wider(id=was.id, floor=0)


new.migrate(old, input=right, steps={first: second})
new.migrate(old, input=lambda was: was, steps={first: second})  # expect: arg-type, return-value
new.migrate(old, input=right, steps={second: first})  # expect: dict-item, misc
new.migrate(old, input=right, steps={"first": "second"})  # expect: dict-item


@new.upcast_input(from_version=1)  # expect: type-var, type-var
def of_dicts(was: dict[str, str]) -> dict[str, str]:
    return was
