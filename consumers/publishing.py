"""Publishing for handlers: what `Transaction.publish` does, and the rows of what a step emitted."""

from __future__ import annotations

from uuid import UUID

from ..outbox.model import OutboxRow, event_row
from ..outbox.publish import publish
from ..schemas.events import Publishable
from ..schemas.transaction import Transaction
from ..streams.tracing import current_traceparent
from .calls import Call
from .engine import Engine


async def publish_in(tx: Transaction, events: tuple[Publishable, ...]) -> list[UUID]:
    """Write events to the outbox in a handler's transaction; returns their ids."""
    return await publish(tx, *events)


def emitted_rows(engine: Engine, call: Call) -> list[OutboxRow]:
    """Return the outbox rows of what a step emitted.

    Raises:
        UsageError: MP310 to MP318 for an event that cannot be published.
    """
    return [
        event_row(
            event,
            ids=engine.changes.ids,
            clock=engine.changes.clock,
            tenant=call.run.tenant,
            correlation_id=call.run.correlation_id,
            traceparent=current_traceparent(),
        )
        for event in call.emitted
    ]
