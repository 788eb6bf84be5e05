"""The books of the stand-ins for model and pages: append-only, on disk before anybody is answered."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

_TABLE = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS entry (
    n integer PRIMARY KEY, kind text NOT NULL, name text NOT NULL, content text NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened.

    Attributes:
        kind: "chat" and "page" for what was done, "call" for what was asked for.
        name: How it went, or the external id of a page.
        content: The text.
    """

    n: int
    kind: str
    name: str
    content: str


class Book:
    """Write entries and read them back.

    Args:
        path: The file; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, check_same_thread=False)
        self._file.executescript(_TABLE)

    def write(self, kind: str, name: str, content: str = "") -> int:
        """Write an entry and wait until it is on disk; returns its number within its kind, from 1."""
        with self._file:
            row = (kind, name, content)
            self._file.execute("INSERT INTO entry (kind, name, content) VALUES (?, ?, ?)", row)
        return len(self.entries(kind))

    def entries(self, kind: str, name: str | None = None) -> list[Entry]:
        """Return the entries of a kind, and of a name where one is given, oldest first."""
        sql = "SELECT n, kind, name, content FROM entry WHERE kind = ? ORDER BY n"
        found = [Entry(*row) for row in self._file.execute(sql, (kind,))]
        return [entry for entry in found if name in (None, entry.name)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
