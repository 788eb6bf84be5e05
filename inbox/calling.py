"""One call of a handler, and whose failure it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..schemas.envelope import Envelope
from ..schemas.errors import UsageError
from ..schemas.transaction import Publisher, Transaction
from ..streams.database import require_same_transaction
from ..streams.reader_lane import getting_on
from ..streams.tracing import current_traceparent, span
from .answers import Answering
from .barrier import Barriers
from .failures import HandlerFailed, Underneath, is_infrastructure, is_lost
from .model import Item
from .together import Together


async def call(
    consumer: str, publisher: Publisher, tx: Transaction, *items: Item, shared: Barriers | None = None
) -> None:
    """Call the handler of an event, or of several that it takes together.

    Args:
        consumer: Name of the consumer, for the trace.
        publisher: What `Transaction.publish` calls.
        tx: The open transaction; the handler gets one like it, which ends with it.
        items: The event; several only for a handler that takes them together.
        shared: What the commands of the transaction share; None for the only event of a transaction.

    Raises:
        HandlerFailed: The handler raised, or has ended the transaction.
        Underneath: It met trouble underneath, which says nothing about the event.
        CancelledError: This task was cancelled meanwhile.
    """
    envelopes = [item.envelope for item in items if item.envelope is not None]
    item, envelope, connection = items[0], envelopes[0], tx.connection
    several = len(items) > 1
    scoped = Transaction(connection, publisher, tx._session, None if several else envelope, _ended=tx._ended)
    scoped._envelopes = envelopes
    try:
        with span(
            f"process {envelope.type}",
            # Empty text is no valid parent: an event without one begins a trace of its own, and so do several.
            traceparent="" if several else envelope.traceparent or "",
            links=_links(envelopes if several else ()),
            kind="consumer",
            attributes={
                "messaging.system": "kafka",
                "messaging.consumer.group.name": consumer,
                "messaging.destination.name": envelope.topic,
                "messaging.message.id": envelope.event_id,
            },
            secret=any(one.secret for one in items),
        ):
            await _handle(items, scoped, shared)
            await require_same_transaction(tx)
        getting_on()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HandlerFailed(item, ended=await _has_ended(tx), last=items[-1]) from error
    except Exception as error:
        ended = await _has_ended(tx)
        if is_infrastructure(error) or is_lost(connection):
            raise Underneath(error, item, ended=ended) from error
        raise HandlerFailed(item, ended=ended, last=items[-1]) from error
    finally:
        scoped.closed = True


def _links(envelopes: Sequence[Envelope]) -> list[str]:
    """Return the traces of events taken together, and what the call is part of, such as a replay."""
    around = current_traceparent()
    return [*([around] if around else ()), *(one.traceparent for one in envelopes if one.traceparent)]


async def _handle(items: Sequence[Item], tx: Transaction, shared: Barriers | None) -> None:
    handler = items[0].handler
    assert handler is not None
    if isinstance(handler, Together):
        await handler.handler([item.event for item in items], tx)
    elif isinstance(handler, Answering) and shared is not None:
        command: Any = items[0].event
        await handler.handle(command, tx, shared)
    else:
        await handler(items[0].event, tx)


async def _has_ended(tx: Transaction) -> bool:
    try:
        await require_same_transaction(tx)
    except UsageError:
        return True
    return False
