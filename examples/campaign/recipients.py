"""To whom campaigns go: chosen when one is placed, and read from there as often as they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from sqlalchemy import Select, func, literal, select
from sqlalchemy.ext.asyncio import AsyncEngine

from .book import TRIAL
from .contracts import Letter, PlaceCampaign
from .tables import ReaderRow, RecipientRow


class Recipients:
    """Reads the recipients of a campaign."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @classmethod
    @asynccontextmanager
    async def connect(cls, engine: AsyncEngine) -> AsyncIterator[Self]:
        """Use the service's connections."""
        yield cls(engine)

    async def letters(self, to: PlaceCampaign, *, trial: bool) -> AsyncIterator[Letter]:
        """Read a campaign's letters, in the order of its recipients and never all at once.

        Args:
            trial: Those of the first batch, else those of the rest.
        """
        first = RecipientRow.n < TRIAL
        query = (
            select(RecipientRow.reader, RecipientRow.address)
            .where(RecipientRow.campaign_id == to.campaign_id, first if trial else ~first)
            .order_by(RecipientRow.n)
        )
        async with self._engine.connect() as connection:
            async for reader, address in await connection.stream(query):
                yield Letter(campaign_id=to.campaign_id, issue=to.issue, reader=reader, address=address)


def chosen(body: PlaceCampaign) -> Select[Any]:
    """Return the query for the recipients of a new campaign, as rows of their table; each with today's address."""
    place = func.row_number().over(order_by=ReaderRow.id) - 1
    query = select(literal(body.campaign_id), place, ReaderRow.id, ReaderRow.address)
    if body.audience:
        return query.where(ReaderRow.audience == body.audience)
    failed = (RecipientRow.campaign_id == body.failed_of, RecipientRow.message_id.is_(None))
    return query.join(RecipientRow, RecipientRow.reader == ReaderRow.id).where(*failed)
