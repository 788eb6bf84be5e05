"""Collects what the verdict is about: runs from the command line, the provider's ledger, the service's own tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from milepost import Settings
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from ..notify.ledger import Ledger
from ..stage.processes import milepost
from .contracts import PlaceCampaign, Reader
from .processes import Fleet
from .saga import rest, trial
from .tables import CampaignRow, RecipientRow
from .verdict import Ended, Facts, Recipient, Run

#: States in which nothing more happens to a run.
ENDED = frozenset({"SUCCEEDED", "PARTIALLY_SUCCEEDED", "COMPENSATED", "FAILED", "CANCELLED", "EXPIRED"})

#: Most items that the command line lists at a time.
PAGE = 1000


async def states(env: Mapping[str, str], saga: str, limit: int = 100) -> dict[str, str]:
    """Return the states of a saga's runs as `milepost runs list --json` tells them, by key."""
    found = await _told(env, "list", "--saga", saga, "--limit", str(limit))
    return {str(run["run"]).partition("/")[2]: str(run["state"]) for run in found}


async def failed_items(env: Mapping[str, str], campaign_id: str) -> list[int]:
    """Return the readers whose letter has failed, as `milepost runs items --json` tells them."""
    found: list[dict[str, Any]] = []
    for node in (trial, rest):
        words = (f"campaign/{campaign_id}", node.name, "--state", "FAILED", "--limit", str(PAGE))
        page = await _told(env, "items", *words)
        found += page
        while len(page) == PAGE:
            page = await _told(env, "items", *words, "--after", str(page[-1]["number"]))
            found += page
    return [letter_run(item["key"], "FAILED").reader for item in found]


async def collect(
    fleet: Fleet, readers: Sequence[Reader], placed: Sequence[PlaceCampaign], expected: Mapping[str, str]
) -> Facts:
    """Collect everything that is known at the end."""
    campaigns = await states(fleet.env, "campaign")
    letters = await states(fleet.env, "letter", 3 * len(readers))
    partial = [id for id, state in campaigns.items() if state == "PARTIALLY_SUCCEEDED"]
    failed = {id: await failed_items(fleet.env, id) for id in partial}
    ledger = Ledger(fleet.ledger)
    url = Settings.model_validate({"database_url": fleet.env["MILEPOST_DATABASE_URL"]}).sqlalchemy_url
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            return Facts(
                readers=readers,
                placed=placed,
                expected=expected,
                ended=await _ended(connection, campaigns),
                failed_items=failed,
                recipients=await _recipients(connection),
                runs=[letter_run(key, state) for key, state in letters.items()],
                messages=ledger.messages(),
            )
    finally:
        ledger.close()
        await engine.dispose()


def letter_run(key: str, state: str) -> Run:
    """Read a letter's run from its key: campaign, reader, and behind "~" the how manieth it is."""
    name, _, again = key.partition("~")
    campaign_id, _, reader = name.rpartition("-")
    return Run(campaign_id, int(reader), state, bool(again))


async def _told(env: Mapping[str, str], *words: str) -> list[dict[str, Any]]:
    """Return what `milepost runs … --json` prints."""
    return [json.loads(line) for line in (await milepost(env, "runs", *words, "--json")).splitlines()]


async def _ended(connection: AsyncConnection, found: Mapping[str, str]) -> dict[str, Ended]:
    rows = await connection.execute(select(CampaignRow.id, CampaignRow.sent, CampaignRow.failed))
    return {id: Ended(found[id], sent, failed) for id, sent, failed in rows if id in found}


async def _recipients(connection: AsyncConnection) -> list[Recipient]:
    columns = (RecipientRow.campaign_id, RecipientRow.reader, RecipientRow.message_id)
    return [
        Recipient(id, reader, message or "")
        for id, reader, message in await connection.execute(select(*columns))
    ]
