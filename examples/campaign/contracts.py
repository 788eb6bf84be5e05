"""What the service takes in: readers, campaigns, and the one letter that a campaign is made of."""

from __future__ import annotations

import os
from typing import Self

from pydantic import BaseModel, Field, model_validator

#: Beginning of the names of topics and groups, where several of these share a broker.
PREFIX = os.environ.get("CAMPAIGN_PREFIX", "")


class Reader(BaseModel):
    """Somebody who gets letters.

    Attributes:
        audience: The list that the reader is on.
    """

    id: int
    address: str = Field(min_length=3, max_length=200)
    audience: str = Field(min_length=1, max_length=40)


class PlaceCampaign(BaseModel):
    """A campaign as the API takes it; also the saga's input.

    Attributes:
        campaign_id: The caller's idempotency key.
        issue: What is sent: nobody is to get one issue twice, whatever campaign it comes with.
        audience: The list of those who get it.
        failed_of: Instead of a list: those to whom this campaign, which has ended, could not deliver.
    """

    campaign_id: str = Field(min_length=1, max_length=40)
    issue: str = Field(min_length=1, max_length=40)
    audience: str = ""
    failed_of: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.audience) == bool(self.failed_of):
            raise ValueError("say either audience or failed_of")
        return self


class Letter(BaseModel):
    """One recipient of one campaign."""

    campaign_id: str
    issue: str
    reader: int
    address: str
