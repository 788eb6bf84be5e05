"""Where a partition is read from when it is taken over, so that nothing is skipped whatever became of the offsets.

Three things say how far it was read: the group's offset in Kafka, the position stored with the effects, and what the
topic itself holds. Reading something again costs time, since the inbox absorbs it; skipping something loses it. So
every doubt is answered by reading from further back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from .kafka_poll import Partition

#: How much further back than the stored position's time to read when the group has lost its offsets: more than any two
#: clocks differ.
MARGIN = timedelta(hours=1)


class StartAgain(Exception):
    """What was stored is not what it was: the positions are to be looked up anew."""


class Past(Protocol):
    """What is stored about how far partitions were read, beside the next offsets themselves."""

    async def moved_at(self, partition: Partition) -> datetime | None:
        """Return when the stored position was last moved, by the database's clock; None without one."""
        ...

    async def begin_anew(self, partition: Partition, offset: int) -> None:
        """Move the stored position back to `offset`: the topic was made anew, and what was stored is of the old one."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """What is known when a partition is taken over.

    Attributes:
        committed: The group's offset, if it has one.
        stored: The stored next offset, if there is one.
        sent_since: First offset whose timestamp is not older than the stored position, asked for when the group has
            no offset; None when there is none.
        begin: First offset there is.
        end: The one behind the last.
    """

    committed: int | None
    stored: int | None
    begin: int
    end: int
    sent_since: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where to read from.

    Attributes:
        offset: None for the earliest there is.
        anew: Whether the topic turned out to be another one than was read before.
        remark: What people should know, "" for nothing.
    """

    offset: int | None
    anew: bool = False
    remark: str = ""


def start_offset(committed: int | None, stored: int | None) -> int | None:
    """Return where to read from: the lower of both, the one that is known, or None for the earliest."""
    known = [offset for offset in (committed, stored) if offset is not None]
    return min(known) if known else None


def find_start(known: Known) -> Start:
    """Return where to read from.

    - A stored position beyond the end cannot be of this topic: it was deleted and made anew (or an unclean election has
      cut its end off), so it is read from its beginning. A log never gets shorter otherwise. Kafka's topic id would
      tell the same; aiokafka 0.14 does not read it, and there was none to compare with where positions were stored
      before.
    - A stored position without a believable offset of the group: either the group's offsets expired or were deleted or
      were set beyond what is committed, or the topic was made anew, and its offsets went with it. In a new topic every
      record is younger than the position, so that reading from the first such record skips nothing in any case.
    - Before the beginning: retention has removed what was not read yet.
    """
    committed, stored = known.committed, known.stored
    farthest = committed if stored is None else stored
    if farthest is None:
        return Start(None)
    if farthest > known.end:
        return Start(
            known.begin,
            anew=True,
            remark=f"was read up to {farthest} and ends at {known.end}: the topic was made anew, and is read from its "
            "beginning",
        )
    offset = start_offset(known.sent_since if doubtful(committed, known.end) else committed, stored)
    assert offset is not None, "one of both is known"
    if offset < known.begin:
        # Below `farthest` they were read.
        unread = known.begin - farthest
        return Start(known.begin, remark=removed(unread, farthest) if unread > 0 else "")
    return Start(offset)


def removed(amount: int, offset: int) -> str:
    """Say that a topic's retention was faster than its reader."""
    return f"{amount} offsets from {offset} on were removed by the topic's retention before they were read"


def doubtful(committed: int | None, end: int) -> bool:
    """Tell whether a group's offset says nothing about the topic as it is."""
    return committed is None or committed > end
