"""The signal intake: awaited events are stored, matched with waits, and their runs resumed, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ..inbox.consumer import Consumer, Handler, PreparedConsumer
from ..inbox.signals import NewSignal, Stored, lock_keys, store_signals
from ..outbox import publish
from ..outbox.model import message_row
from ..schemas.envelope import Envelope
from ..schemas.events import Event, correlation_of
from ..schemas.messages import ResumeMessage, runs_topic, signals_group
from ..schemas.transaction import Transaction
from ..streams.tracing import current_traceparent

if TYPE_CHECKING:
    import asyncpg

    from .app import Milepost


class SignalRefused(Exception):
    """PostgreSQL cannot hold the event; it is parked as a dead letter."""


def awaited(service: Milepost) -> list[type[Event]]:
    """Return the event classes that some saga of the service waits for, each once."""
    waits = [
        node.wait for definition in service.definitions for node in definition.nodes if node.wait is not None
    ]
    return list({wait.event.milepost_spec.type: wait.event for wait in waits}.values())


def signal_consumer(service: Milepost) -> Consumer:
    """Return the internal consumer that takes awaited events in.

    Its inbox drops repeated events; what it cannot read it parks, like any consumer.
    """
    consumer = PreparedConsumer(signals_group(service.name), _lock)
    for event in awaited(service):
        consumer.on(event)(_intake(service))
    return consumer


async def _lock(tx: Transaction, events: Sequence[tuple[Event, Envelope]]) -> None:
    """Lock the keys of the whole batch: one event after the other, two batches would wait for each other."""
    keys = []
    for event, envelope in events:
        # Whatever is wrong with a key shows again in its handler, which has the event parked.
        with suppress(Exception):
            keys.append((envelope.tenant, event.milepost_spec.type, cast(str, correlation_of(event))))
    await lock_keys(tx.connection, keys)


def _intake(service: Milepost) -> Handler[Event]:
    async def take(event: Event, tx: Transaction) -> None:
        signal = _received(service, event, tx)
        stored = await store_and_resume(
            service, tx.connection, signal, correlation_id=tx.envelope.correlation_id
        )
        if stored.refused:
            raise SignalRefused(stored.refused[0].reason)

    return take


async def store_and_resume(
    service: Milepost,
    connection: asyncpg.Connection[Any],
    signal: NewSignal,
    *,
    correlation_id: str | None = None,
) -> Stored:
    """Store a signal, match it, and tell the runs that it ends the wait of, all in the open transaction.

    Args:
        correlation_id: Travels with the resume messages.
    """
    stored = await store_signals(connection, [signal])
    rows = [
        message_row(
            ResumeMessage(run=m.run_id, step=m.step, iteration=m.iteration, generation=m.generation),
            topic=runs_topic(service.name),
            key=str(m.run_id),
            ids=service.ids,
            clock=service.clock,
            tenant=signal.tenant,
            service=service.name,
            correlation_id=correlation_id,
            traceparent=signal.traceparent,
        )
        for m in stored.matched
    ]
    await publish.publish_rows(connection, rows)
    return stored


def _received(service: Milepost, event: Event, tx: Transaction) -> NewSignal:
    envelope = tx.envelope
    return NewSignal(
        id=service.ids.new(),
        tenant=envelope.tenant,
        source=envelope.source,
        event_id=envelope.event_id if envelope.identified else str(envelope.id),
        type=event.milepost_spec.type,
        key=cast(str, correlation_of(event)),
        payload=event.model_dump_json(by_alias=True),
        traceparent=envelope.traceparent or current_traceparent(),
        version=event.milepost_spec.version,
    )
