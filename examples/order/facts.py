"""Collects what the verdict is about: runs from the command line, effects from ledgers, the shop's own tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from milepost import Settings
from sqlalchemy import select
from sqlalchemy.ext.asyncio import create_async_engine

from ..shop.facts import booked
from ..shop.ledger import Effect
from ..stage.processes import milepost
from .processes import COMPANIES, Fleet
from .tables import InvoiceRow, OrderRow

#: States in which nothing more happens to a run.
ENDED = frozenset({"SUCCEEDED", "COMPENSATED", "FAILED", "CANCELLED", "EXPIRED"})


async def runs(env: Mapping[str, str], limit: int) -> dict[str, dict[str, Any]]:
    """Return the runs as `milepost runs list --json` tells them, by order id."""
    text = await milepost(env, "runs", "list", "--saga", "order", "--limit", str(limit), "--json")
    found = [json.loads(line) for line in text.splitlines()]
    return {str(run["run"]).partition("/")[2]: run for run in found}


async def effects(fleet: Fleet) -> list[Effect]:
    """Return everything that happened, at the companies and in the shop's own tables ("invoice" and "close")."""
    found = [effect for company in COMPANIES for effect in booked(fleet.ledger(company))]
    given = {"database_url": fleet.env["MILEPOST_DATABASE_URL"]}
    engine = create_async_engine(Settings.model_validate(given).sqlalchemy_url)
    try:
        async with engine.connect() as connection:
            for n, order_id, amount in await connection.execute(
                select(InvoiceRow.id, InvoiceRow.order_id, InvoiceRow.amount)
            ):
                found.append(Effect(f"invoice-{n}", "invoice", "", order_id, amount=str(amount)))
            for order_id, state in await connection.execute(select(OrderRow.id, OrderRow.state)):
                if state not in ("NEW", "OPEN"):
                    found.append(Effect(f"close-{order_id}", "close", "", order_id, subject=state.lower()))
    finally:
        await engine.dispose()
    return found
