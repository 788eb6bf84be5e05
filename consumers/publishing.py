"""Publishing for handlers: what `Transaction.publish` does, and the rows of what a step emitted."""

from __future__ import annotations

from uuid import UUID

from ..outbox.model import OutboxRow, event_row
from ..outbox.publish import publish
from ..schemas.commands import Command
from ..schemas.events import Event, Publishable
from ..schemas.transaction import Transaction
from ..streams.tracing import current_traceparent
from .calls import Call
from .engine import Engine
from .sending import command_row, operation


async def publish_in(tx: Transaction, events: tuple[Publishable, ...]) -> list[UUID]:
    """Write events to the outbox in a handler's transaction; returns their ids."""
    return await publish(tx, *events)


def emitted_rows(engine: Engine, call: Call) -> list[OutboxRow]:
    """Return the outbox rows of what a step emitted.

    Raises:
        UsageError: MP310 to MP318 for an event that cannot be published.
    """
    return [_row(engine, call, event) for event in call.emitted]


def _row(engine: Engine, call: Call, event: Event) -> OutboxRow:
    if call.undoes_by(event):
        assert isinstance(event, Command)
        step = operation(call.node.name, call.step.iteration)
        return command_row(
            engine.changes, call.run, event, step=step, direction="undo", attempt=call.step.attempt
        )
    return event_row(
        event,
        ids=engine.changes.ids,
        clock=engine.changes.clock,
        tenant=call.run.tenant,
        correlation_id=call.run.correlation_id,
        traceparent=current_traceparent(),
    )
