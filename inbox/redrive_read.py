"""Whether and how a letter's event can be handled once more."""

from __future__ import annotations

from dataclasses import replace

from . import model
from .consumer import Consumer
from .model import BEHIND, Item, Reason
from .redrive_store import Letter


class Refused(Exception):
    """The letter cannot be applied as it is."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


#: The letter is there and its inbox row is not.
GONE = Reason(
    "HANDLE",
    "INBOX_ROW_GONE",
    "the inbox does not remember this event any more, so nobody may know whether it was applied meanwhile",
    recoverable=False,
)


def allowed(consumer: Consumer, letter: Letter) -> int:
    """Return the tries of one redrive: a person's is one; a letter that only waited gets what an event gets."""
    return consumer.retry.attempts if letter.code == BEHIND.code else 1


def read(consumer: Consumer, letter: Letter) -> Item:
    """Read a letter's event as it is now to be handled, however old it is.

    Raises:
        Refused: It still is none that this consumer handles.
    """
    item = model.read(letter.record, consumer.handler_of, unknown="dead_letter", oldest_ms=float("-inf"))
    if item.reason is not None:
        raise Refused(item.reason)
    if item.handler is None or item.envelope is None:
        raise Refused(Reason("DECODE", "UNKNOWN_TYPE", "no handler takes it", recoverable=True))
    item.envelope = replace(item.envelope, delivery=letter.attempts + 1)
    return item
