"""The shop: it asks for trucks, and keeps what it hears about them in a table of its own.

Run it with `milepost --app milepost.examples.trucks.service:service serve`.
"""

from __future__ import annotations

from milepost import Milepost, Transaction

from .contracts import NothingToCancel, TruckBooked, TruckCancelled, TruckRefused

TABLE = """
CREATE TABLE IF NOT EXISTS truck (
    run text NOT NULL, step text NOT NULL, direction text NOT NULL, outcome text NOT NULL, detail text NOT NULL,
    correlation text NOT NULL, traceparent text NOT NULL, at timestamptz NOT NULL DEFAULT now()
)
"""
_HEARD = (
    "INSERT INTO truck (run, step, direction, outcome, detail, correlation, traceparent)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7)"
)

service = Milepost("haulage")
replies = service.consumer("haulage-truck-replies")


@replies.on(TruckBooked)
async def booked(event: TruckBooked, tx: Transaction) -> None:
    """A truck is there."""
    await _heard(tx, event.plate)


@replies.on(TruckCancelled)
async def cancelled(event: TruckCancelled, tx: Transaction) -> None:
    """It is given back."""
    await _heard(tx, event.truck)


@replies.on(TruckRefused)
async def refused(event: TruckRefused, tx: Transaction) -> None:
    """There is none."""
    await _heard(tx, event.code)


@replies.on(NothingToCancel)
async def nothing(event: NothingToCancel, tx: Transaction) -> None:
    """There was none to give back."""
    await _heard(tx, "")


async def _heard(tx: Transaction, detail: str) -> None:
    envelope, exchange = tx.envelope, tx.envelope.exchange
    assert exchange is not None, "a reply says which operation it belongs to"
    await tx.connection.execute(
        _HEARD,
        exchange.run,
        exchange.step,
        exchange.direction,
        exchange.outcome,
        detail,
        envelope.correlation_id,
        envelope.traceparent or "",
    )
