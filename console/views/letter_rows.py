"""Letters as pages and files have them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from ...recovery.letters import LIVE
from ...schemas.states import LetterStatus
from .model import View
from .payload import Header, Payload, short

#: Codes whose words are Milepost's own; those of others may quote what an event says.
_OWN = frozenset(
    {
        *(
            "KEY_HELD",
            "PROCESS_DIED",
            "INBOX_ROW_GONE",
            "EDITED",
            "TOO_OLD",
            "EVENT_ID_REUSED",
            "UNKNOWN_TYPE",
        ),
        *("NO_TYPE", "NO_VALUE", "BAD_HEADER", "UNSUPPORTED_FORMAT", "UNSUPPORTED_CONTENT"),
    }
)
_KIND = re.compile(r"[A-Za-z_][\w.]*(?=:)")


class LetterGroup(View):
    """Letters with one cause.

    Attributes:
        name: Chooses them: `LetterFilter(cause=name)`.
        cause: The message without what differs from letter to letter.
        asked: How many of them are asked for and not carried out yet.
        recoverable: Whether each may be redriven.
        first, last: The lowest and the highest number.
        message: Of the youngest.
    """

    name: str
    consumer: str
    topic: str
    code: str
    cause: str
    amount: int
    asked: int
    recoverable: bool
    first: int
    last: int
    first_at: datetime
    last_at: datetime
    message: str


class LetterGroups(View):
    """Groups, the largest first.

    Attributes:
        letters: How many letters they were made of.
        cut: Whether older letters were left out.
    """

    groups: list[LetterGroup]
    letters: int
    cut: bool
    now: datetime | None = None


class LetterRow(View):
    """A letter in a list.

    Attributes:
        n: Its number.
        partition: And offset: where its record was read; None of the relay's.
        seq: Of the outbox row, of the relay's.
        holds: Whether it holds its key or waits behind it.
        bytes: Size of its value.
        cause: Name of its group.
    """

    n: int
    id: UUID
    status: LetterStatus
    consumer: str
    relay: bool
    tenant: str
    event: UUID
    topic: str
    partition: int | None
    offset: int | None
    seq: int | None
    key: str | None
    stage: str
    code: str
    message: str
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    recoverable: bool
    asked_at: datetime | None
    asked_by: str | None
    resolved_at: datetime | None
    resolved_by: str | None
    holds: bool
    bytes: int | None
    cause: str

    @property
    def live(self) -> bool:
        """Whether something may still be done about it."""
        return self.status in LIVE


class LetterRows(View):
    """A page of letters.

    Attributes:
        next: Give it as `after` for the next page; None on the last.
    """

    letters: list[LetterRow]
    next: int | None
    now: datetime | None = None


class Failure(View):
    """How a letter failed before."""

    attempts: int
    at: datetime
    code: str
    message: str


class InLine(View):
    """A letter of a held key."""

    n: int
    code: str
    status: LetterStatus
    last_failed_at: datetime


class LetterAudit(View):
    """What was done about a letter."""

    id: UUID
    at: datetime
    actor: str
    act: str
    reason: str
    before: str
    after: str


class LetterDetail(View):
    """Everything about one letter.

    Attributes:
        sent_at: The record's own time.
        value: And headers: hidden from who may not see what events say.
        edit_of: Number of the letter it was edited from; 0 where that one is gone.
        edited_as: Number of the letter that was made of it; 0 where that one is gone.
        line: Letters of its key that are not done, in order; with itself.
        inbox: What the consumer's inbox says of its event: PARKED, APPLIED, or None.
        coded: Whether a codec wrote its value, so that nobody can edit it.
    """

    letter: LetterRow
    sent_at: datetime | None
    value: Payload
    headers: list[Header]
    failures: list[Failure]
    edit_of: int | None
    edited_as: int | None
    line: list[InLine]
    inbox: str | None
    coded: bool
    audits: list[LetterAudit]
    now: datetime


def owner(scope: str) -> str:
    """Return whose letter it is: a consumer's name, or the relay."""
    return "relay" if scope.startswith("relay:") else scope.partition(":")[2]


def spoken(message: str, code: str, stage: str, *, readable: bool) -> str:
    """Return a failure's words; for who may not see what events say only what cannot quote one."""
    if readable or stage == "RELAY" or code in _OWN:
        return message
    kind = _KIND.match(message)
    return f"{kind[0]}: …" if kind else "…"


def letter_row(row: Any, *, readable: bool) -> LetterRow:
    """Return a letter of a list."""
    made = {
        name: row[name]
        for name in LetterRow.model_fields
        if name not in {"consumer", "relay", "event", "key", "message"}
    }
    return LetterRow(
        **made,
        consumer=owner(row["scope"]),
        relay=row["stage"] == "RELAY",
        event=row["event_id"],
        key=short(row["key"], readable=True),
        message=spoken(row["message"], row["code"], row["stage"], readable=readable),
    )
