"""The service: its web API and its two sagas.

`milepost serve` runs the sagas, with MILEPOST_APP=milepost.examples.campaign.service:service. The API needs neither
Kafka nor a worker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

from fastapi import HTTPException
from milepost import Milepost, Settings, StateError
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from ..notify.clients import Provider
from ..stage.web import service_api
from .contracts import PREFIX, PlaceCampaign, Reader
from .recipients import Recipients, chosen
from .saga import PROVIDER, campaign, letter
from .tables import Base, CampaignRow, ReaderRow, RecipientRow

#: How many calls the provider takes in a second, by the contract with it.
RATE = int(os.environ.get("CAMPAIGN_RATE", "200"))

settings = Settings.from_env()
engine = create_async_engine(settings.sqlalchemy_url)
sessions = async_sessionmaker(engine, expire_on_commit=False)

service = Milepost(f"{PREFIX}campaign", sagas=[campaign, letter], engine=engine, settings=settings)
service.provide(Provider, Provider.connect)
service.provide(Recipients, lambda: Recipients.connect(engine))
service.limit(PROVIDER, calls=RATE, per=timedelta(seconds=1))

api = service_api("campaign", service, engine, Base.metadata)


@api.post("/readers")
async def put_readers(body: Sequence[Reader]) -> dict[str, int]:
    """Take readers, or new addresses of those who are there; campaigns that have been placed keep the old ones."""
    statement = insert(ReaderRow).values([reader.model_dump() for reader in body])
    new = {"address": statement.excluded.address, "audience": statement.excluded.audience}
    async with sessions.begin() as session:
        await session.execute(statement.on_conflict_do_update(index_elements=[ReaderRow.id], set_=new))
    return {"readers": len(body)}


@api.post("/campaigns", status_code=202)
async def place_campaign(body: PlaceCampaign) -> dict[str, str]:
    """Take a campaign: its recipients and its run commit together. The same again is the same run; another is 409."""
    row = {"id": body.campaign_id, "issue": body.issue}
    statement = insert(CampaignRow).values(row).on_conflict_do_nothing().returning(CampaignRow.id)
    try:
        async with sessions.begin() as session:
            if (await session.execute(statement)).scalar() is not None:
                await _choose(session, body)
            run = await service.start(session, campaign, body)
    except StateError as error:
        raise HTTPException(409, str(error)) from error
    return {"run": str(run.id)}


@api.get("/campaigns")
async def campaigns() -> dict[str, dict[str, int]]:
    """Tell of each campaign how many recipients it has and how many of them have got it."""
    counts = (func.count(), func.count(RecipientRow.message_id))
    query = select(RecipientRow.campaign_id, *counts).group_by(RecipientRow.campaign_id)
    async with sessions() as session:
        rows = await session.execute(query)
        return {id: {"recipients": recipients, "sent": sent} for id, recipients, sent in rows}


async def _choose(session: AsyncSession, body: PlaceCampaign) -> None:
    """Write down who gets a new campaign.

    Raises:
        HTTPException: It is for those whom another campaign did not reach, and that one has not ended.
    """
    if body.failed_of:
        other = await session.get(CampaignRow, body.failed_of)
        if other is None or other.failed is None:
            raise HTTPException(409, f"{body.failed_of} has not ended")
    columns = ["campaign_id", "n", "reader", "address"]
    await session.execute(insert(RecipientRow).from_select(columns, chosen(body)))
