"""What operators read of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..inbox.letter import scope_of
from ..schemas.errors import StateError, UsageError
from ..schemas.states import LetterStatus
from ..streams.queries import Queries
from .filters import read_since
from .listing import first_line

#: A letter as a row of the database.
Row = Any

LIVE = (LetterStatus.OPEN, LetterStatus.RETRY_PENDING)


class Sql(Queries, file="dead.sql"):
    """Queries of this module."""

    letters: str
    letter: str
    failures: str
    states: str
    groups: str
    stuck: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which letters; what is None or empty does not matter.

    Attributes:
        key: The record key, as text or as `dead list` shows bytes: 0x….
        consumer: Its name; "relay" for events that were never sent.
        since: Failed last at most so long ago, or since then.
        cause: Name of a group, as `dead groups` prints it.
    """

    statuses: Sequence[LetterStatus] = ()
    topic: str | None = None
    code: str | None = None
    key: str | None = None
    consumer: str | None = None
    since: timedelta | datetime | None = None
    cause: str | None = None
    limit: int = 50

    @property
    def empty(self) -> bool:
        """Whether nothing was chosen by."""
        return self.statuses is LIVE and not any(
            (self.topic, self.code, self.key, self.consumer, self.since, self.cause)
        )

    def as_json(self) -> dict[str, Any]:
        """Return what was chosen by, for people."""
        statuses = [] if self.statuses is LIVE else [status.value for status in self.statuses]
        found = {"status": statuses, "since": None if self.since is None else str(self.since)}
        found |= {name: getattr(self, name) for name in ("topic", "code", "key", "consumer", "cause")}
        return {name: value for name, value in found.items() if value}

    def arguments(self) -> tuple[Any, ...]:
        """Return what the queries take."""
        return (
            [status.value for status in self.statuses],
            self.topic,
            self.code,
            [] if self.key is None else keys(self.key),
            None
            if self.consumer is None
            else "relay"
            if self.consumer == "relay"
            else scope_of(self.consumer),
            self.since if isinstance(self.since, datetime) else None,
            self.since if isinstance(self.since, timedelta) else None,
            self.limit,
            self.cause,
        )


def choice(
    status: Sequence[str],
    *,
    topic: str | None,
    code: str | None,
    key: str | None,
    consumer: str | None,
    since: str | None,
    limit: int,
    cause: str | None = None,
) -> Filter:
    """Put the options of a command together; without --status those that somebody has to look at.

    Raises:
        UsageError: MP601 for a status that there is not, or a --since that cannot be read.
    """
    return Filter(
        statuses=read_statuses(status),
        topic=topic,
        code=None if code is None else code.upper(),
        key=key,
        consumer=consumer,
        since=None if since is None else read_since(since),
        cause=cause,
        limit=limit,
    )


def read_statuses(texts: Sequence[str]) -> tuple[LetterStatus, ...]:
    """Read --status, in whatever case; ALL is every one.

    Raises:
        UsageError: MP601 naming those there are.
    """
    found: list[LetterStatus] = []
    for text in texts:
        wanted = text.strip().upper()
        if wanted == "ALL":
            return ()
        try:
            found.append(LetterStatus(wanted))
        except ValueError:
            known = ", ".join(status.value for status in LetterStatus)
            raise UsageError(
                "MP601", f"--status {text}: there is no such status. There are: {known}, ALL."
            ) from None
    return tuple(found) or LIVE


def no_letter(n: int) -> StateError:
    """Make the error for a number that no letter has."""
    return StateError(
        "MP440", f"letter {n}: there is no such letter. `milepost dead list` shows those there are."
    )


def owner(scope: str) -> str:
    """Return whose letter it is: a consumer's name, or the relay."""
    return "relay" if scope.startswith("relay:") else scope.partition(":")[2]


def keys(text: str) -> list[bytes]:
    """Return the record keys that a text may mean: itself, and the bytes that it writes in hexadecimal."""
    found = [text.encode()]
    if text.startswith("0x"):
        with suppress(ValueError):
            found.append(bytes.fromhex(text[2:]))
    return found


def words(data: bytes | None, longest: int = 60) -> str:
    """Write bytes for people: as text where they are some, else in hexadecimal."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"0x{data[:longest].hex()}"
    return text if len(text) <= longest else f"{text[:longest]}…"


def short(row: Row) -> str:
    """Say a letter in a line: "9 orders HANDLER_FAILED ValueError: …"."""
    return f"{row['n']} {row['topic']} {row['code']} {first_line(row['message'])}"
