"""A saga is started with its own input."""

from base import Other, order, service
from sqlalchemy.ext.asyncio import AsyncSession


async def begin(session: AsyncSession) -> None:
    await service.start(session, order, Other(id="o"))  # expect: misc
