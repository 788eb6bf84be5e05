"""Collects what the verdict is about: runs from the command line, effects from the ledgers and the shop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from ..stage.processes import milepost
from .ledger import Effect, Ledger
from .tables import LedgerRow, OrderRow
from .verdict import Outcome

#: States in which nothing more happens to a run by itself.
ENDED = frozenset(
    {"SUCCEEDED", "COMPENSATED", "FAILED", "CANCELLED", "MANUAL_REQUIRED", "COMPENSATION_FAILED"}
)


async def runs(env: Mapping[str, str], limit: int) -> dict[str, dict[str, Any]]:
    """Return the saga's runs as `milepost runs list --json` tells them, by order id."""
    text = await milepost(env, "runs", "list", "--saga", "order", "--limit", str(limit), "--json")
    found = [json.loads(line) for line in text.splitlines()]
    return {run["run"].partition("/")[2]: run for run in found}


def outcomes(orders: Mapping[str, str], found: Mapping[str, Mapping[str, Any]]) -> list[Outcome]:
    """Join the accepted orders (id to amount) with their runs."""
    return [
        Outcome(
            order_id=order_id,
            state=str(found[order_id]["state"]) if order_id in found else "",
            cause=str(found.get(order_id, {}).get("cause") or ""),
            amount=amount,
        )
        for order_id, amount in orders.items()
    ]


def booked(path: Path) -> list[Effect]:
    """Read a company's ledger from its file."""
    ledger = Ledger(path, once={"-"})
    try:
        return ledger.all()
    finally:
        ledger.close()


async def shop_effects(sqlalchemy_url: str) -> list[Effect]:
    """Return what happened in the shop's own database: billing's bookings and orders marked as done."""
    engine = create_async_engine(sqlalchemy_url)
    try:
        async with engine.connect() as connection:
            return await _invoices(connection) + await _closed(connection)
    finally:
        await engine.dispose()


async def _invoices(connection: AsyncConnection) -> list[Effect]:
    rows = await connection.execute(select(LedgerRow.id, LedgerRow.order_id, LedgerRow.amount))
    return [
        Effect(f"invoice-{n}", "invoice", "", order_id, amount=str(amount)) for n, order_id, amount in rows
    ]


async def _closed(connection: AsyncConnection) -> list[Effect]:
    rows = await connection.execute(select(OrderRow.id).where(OrderRow.state == "DONE"))
    return [Effect(f"close-{order_id}", "close", "", order_id) for (order_id,) in rows]
