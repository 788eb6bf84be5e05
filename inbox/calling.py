"""One call of a handler, and whose failure it was."""

from __future__ import annotations

import asyncio

from ..schemas.errors import UsageError
from ..schemas.transaction import Publisher, Transaction
from ..streams.database import require_same_transaction
from ..streams.tracing import span
from .failures import HandlerFailed, Underneath, is_infrastructure, is_lost
from .model import Item


async def call(consumer: str, publisher: Publisher, tx: Transaction, item: Item) -> None:
    """Call the handler of an event.

    Args:
        consumer: Name of the consumer, for the trace.
        publisher: What `Transaction.publish` calls.
        tx: The open transaction; the handler gets one like it, which ends with it.
        item: The event.

    Raises:
        HandlerFailed: The handler raised, or has ended the transaction.
        Underneath: It met trouble underneath, which says nothing about the event.
        CancelledError: This task was cancelled meanwhile.
    """
    assert item.handler is not None and item.envelope is not None
    envelope, connection = item.envelope, tx.connection
    scoped = Transaction(connection, publisher, tx._session, envelope, _ended=tx._ended)
    try:
        with span(
            f"process {envelope.type}",
            # Empty text is no valid parent: an event without one begins a trace of its own.
            traceparent=envelope.traceparent or "",
            kind="consumer",
            attributes={
                "messaging.system": "kafka",
                "messaging.consumer.group.name": consumer,
                "messaging.destination.name": envelope.topic,
                "messaging.message.id": envelope.event_id,
            },
        ):
            await item.handler(item.event, scoped)
            await require_same_transaction(tx)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HandlerFailed(item, ended=await _has_ended(tx)) from error
    except Exception as error:
        ended = await _has_ended(tx)
        if is_infrastructure(error) or is_lost(connection):
            raise Underneath(error, item, ended=ended) from error
        raise HandlerFailed(item, ended=ended) from error
    finally:
        scoped.closed = True


async def _has_ended(tx: Transaction) -> bool:
    try:
        await require_same_transaction(tx)
    except UsageError:
        return True
    return False
