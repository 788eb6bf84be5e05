"""A publish that nobody awaits would be lost in silence."""

from base import Delivered
from milepost import publish
from sqlalchemy.ext.asyncio import AsyncSession


async def tell(session: AsyncSession) -> None:
    publish(session, Delivered(number="p"))  # expect: unused-coroutine
