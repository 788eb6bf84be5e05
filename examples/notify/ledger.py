"""The provider's own book: every message that it has sent, and every webhook that it has sent about one.

SQLite with synchronous=FULL: a message is on disk before anybody is told of it. Nothing here is unique on purpose.
"""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from pathlib import Path

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS message (
    n integer PRIMARY KEY, reference text NOT NULL, tag text NOT NULL, recipient text NOT NULL,
    text text NOT NULL, state text NOT NULL DEFAULT 'accepted'
);
CREATE INDEX IF NOT EXISTS message_reference ON message (reference);
CREATE TABLE IF NOT EXISTS hook (
    n integer PRIMARY KEY, message integer NOT NULL, event_id text NOT NULL, forged integer NOT NULL,
    answer integer NOT NULL
);
"""
_MESSAGE = "SELECT n, reference, tag, recipient, text, state FROM message"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was really sent.

    Attributes:
        n: Its number; the id is "m-" and the number.
        reference: What the caller named the call by.
        tag: What the caller called the thing that it is about: the notification's id.
        state: "accepted", "delivered" or "bounced".
    """

    n: int
    reference: str
    tag: str
    recipient: str
    text: str
    state: str

    @property
    def id(self) -> str:
        """Return its id as the provider tells it."""
        return f"m-{self.n}"


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook that was sent, and the status of its answer, 0 for none."""

    message: int
    event_id: str
    forged: bool
    answer: int


class Ledger:
    """Book messages and webhooks, and read them back.

    Args:
        path: The file; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self._lock = asyncio.Lock()
        self._file = sqlite3.connect(path, check_same_thread=False)
        self._file.executescript(_TABLES)

    async def send(self, reference: str, tag: str, recipient: str, text: str) -> Message:
        """Book a message and wait until it is on disk."""
        row = (reference, tag, recipient, text)
        sql = "INSERT INTO message (reference, tag, recipient, text) VALUES (?, ?, ?, ?)"
        async with self._lock:
            n = await asyncio.to_thread(self._write, sql, row)
        return Message(n, *row, "accepted")

    async def end(self, n: int, state: str) -> None:
        """Note what became of a message."""
        async with self._lock:
            await asyncio.to_thread(self._write, "UPDATE message SET state = ? WHERE n = ?", (state, n))

    async def hook(self, hook: Hook) -> None:
        """Book a webhook."""
        sql = "INSERT INTO hook (message, event_id, forged, answer) VALUES (?, ?, ?, ?)"
        row = (hook.message, hook.event_id, hook.forged, hook.answer)
        async with self._lock:
            await asyncio.to_thread(self._write, sql, row)

    async def find(self, *, reference: str | None = None, n: int | None = None) -> list[Message]:
        """Return the messages of a reference, or of a number, oldest first."""
        where, value = ("reference", reference) if n is None else ("n", n)
        async with self._lock:
            return await asyncio.to_thread(self._messages, f"{_MESSAGE} WHERE {where} = ? ORDER BY n", value)

    def messages(self) -> list[Message]:
        """Return every message, oldest first."""
        return self._messages(f"{_MESSAGE} ORDER BY n")

    def hooks(self) -> list[Hook]:
        """Return every webhook, oldest first."""
        rows = self._file.execute("SELECT message, event_id, forged, answer FROM hook ORDER BY n")
        return [Hook(message, event_id, bool(forged), answer) for message, event_id, forged, answer in rows]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, sql: str, row: tuple[object, ...]) -> int:
        with self._file:
            return self._file.execute(sql, row).lastrowid or 0

    def _messages(self, sql: str, *values: object) -> list[Message]:
        return [Message(*row) for row in self._file.execute(sql, values)]
