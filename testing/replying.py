"""Replies of participants that a test plays itself."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import asyncpg

from ..consumers.app import Milepost
from ..consumers.sending import operation
from ..outbox.model import OutboxRow, event_row
from ..schemas.commands import DONE, REFUSED, request_headers
from ..schemas.errors import Refused
from ..schemas.events import Event
from ..schemas.exchange import CODE, OUTCOME
from ..schemas.messages import replies_topic


class _No(Event, type="kit.refused", topic="replies"):
    code: str
    message: str


def reply_row(service: Milepost, run: UUID, row: asyncpg.Record, answer: Event | Refused) -> OutboxRow:
    """Return a reply as a participant's outbox would hold it.

    Args:
        row: What the run has sent: step, iteration, attempt and whether it was by an undo.
        answer: The reply, or why it is refused.
    """
    topic = replies_topic(service.name)
    headers = request_headers(
        str(run),
        operation(row["step"], row["iteration"]),
        "undo" if row["undo"] else "do",
        row["attempt"],
        "",
    )
    if isinstance(answer, Refused):
        event: Event = _No(code=answer.code, message=answer.message)
        headers |= {OUTCOME: REFUSED, CODE: answer.code}
    else:
        event = answer
        headers |= {OUTCOME: DONE}
    made = event_row(event, ids=service.ids, clock=service.clock, topic=topic)
    return replace(made, headers=made.headers | headers)
