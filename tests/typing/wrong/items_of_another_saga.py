"""The items of a fan-out are inputs of its saga, yielded from the context of the saga that fans out."""

from collections.abc import AsyncIterator

from milepost import Context, FanOut, Saga
from pydantic import BaseModel


class Letter(BaseModel):
    customer: str


class Campaign(BaseModel):
    name: str


letter = Saga("letter", version=1, input=Letter, key=lambda given: given.customer)
campaign = Saga("campaign", version=1, input=Campaign, key=lambda given: given.name)


async def letters(ctx: Context[Campaign]) -> AsyncIterator[Letter]:
    yield Letter(customer=ctx.input.name)


async def campaigns(ctx: Context[Campaign]) -> AsyncIterator[Campaign]:
    yield ctx.input


async def of_letters(ctx: Context[Letter]) -> AsyncIterator[Letter]:
    yield ctx.input


async def at_once(ctx: Context[Campaign]) -> list[Letter]:
    return []


right = campaign.each("right", letter, items=letters, concurrency=50, min_success=0.95)
wrong = campaign.each("wrong", letter, items=campaigns)  # expect: arg-type
other = campaign.each("other", letter, items=of_letters)  # expect: arg-type
whole = campaign.each("whole", letter, items=at_once)  # expect: arg-type


@right.undo
async def recall(ctx: Context[Campaign], done: FanOut) -> None:
    print(done.succeeded, done.cancelled)


@right.undo  # expect: arg-type
async def misread(ctx: Context[Campaign], done: Letter) -> None: ...
