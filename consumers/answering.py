"""Replies: what a participant's answer becomes in the outbox."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ..outbox.model import OutboxRow, event_row, message_row
from ..outbox.publish import publish_rows
from ..schemas.commands import Negative, Reply, reply_headers
from ..schemas.envelope import Envelope
from ..schemas.events import Event
from ..schemas.exchange import ATTEMPT, CODE, DIRECTION, OUTCOME, RUN, STEP
from ..schemas.ids import SystemClock, SystemIds
from ..schemas.transaction import Transaction
from ..streams.tracing import current_traceparent

_CLOCK = SystemClock()
_IDS = SystemIds()

#: Headers that differ from attempt to attempt; a stored reply gets those of the attempt that it answers.
_OF_THE_ATTEMPT = frozenset(
    {
        *("ce_correlationid", "ce_causationid", "traceparent", "tracestate"),
        *(RUN, STEP, DIRECTION, ATTEMPT, OUTCOME, CODE),
    }
)


async def write_reply(
    tx: Transaction, answer: Event | Negative | Reply, *, topic: str, key: str | None, outcome: str
) -> Reply:
    """Write a reply to the outbox in a handler's transaction (schemas.commands.Replier).

    A stored reply keeps id, time and body, so that whoever consumes both copies applies one.

    Raises:
        UsageError: MP310 to MP317 for a reply that cannot be published.
        StateError: MP410 when the outbox has no partition for today.
    """
    envelope = tx.envelope
    row = _row(envelope, answer, topic, key)
    code = answer.code if isinstance(answer, Negative) else row.headers.get(CODE, "")
    headers = {name: text for name, text in row.headers.items() if name not in _OF_THE_ATTEMPT}
    headers |= _of_the_attempt(envelope) | reply_headers(envelope, outcome, code)
    await publish_rows(tx.connection, [replace(row, headers=headers)])
    return Reply(row.type, row.aggregateid, row.payload, headers)


def _row(envelope: Envelope, answer: Event | Negative | Reply, topic: str, key: str | None) -> OutboxRow:
    tenant = envelope.tenant
    if isinstance(answer, Reply):
        headers = dict(answer.headers)
        event_id = UUID(headers["ce_id"])
        return OutboxRow(event_id, tenant, topic, topic, answer.key, answer.type, answer.payload, headers)
    if isinstance(answer, Event):
        return event_row(answer, ids=_IDS, clock=_CLOCK, tenant=tenant, topic=topic)
    row = message_row(
        answer,
        topic=topic,
        key=key or "",
        ids=_IDS,
        clock=_CLOCK,
        tenant=tenant,
        service=answer.message_type.partition(".")[0],
        correlation_id=None,
        traceparent=None,
    )
    return replace(row, aggregateid=key)


def _of_the_attempt(envelope: Envelope) -> dict[str, str]:
    found = {
        "ce_correlationid": envelope.correlation_id or envelope.event_id,
        "ce_causationid": envelope.event_id,
        "traceparent": current_traceparent(),
        "tracestate": envelope.tracestate,
    }
    return {name: text for name, text in found.items() if text}
