"""What the command line prints: words for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .listing import Entry, lay_out

#: Width of output that goes to a file or a pipe, in columns: wide enough that no line is folded.
PIPE_WIDTH = 4096

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: Style of a state on a terminal.
STATE_STYLES = {
    "SUCCEEDED": "green",
    "PARTIALLY_SUCCEEDED": "yellow",
    "STARTED": "cyan",
    "COMPENSATED": "yellow",
    "COMPENSATING": "yellow",
    "COMPENSATION_PENDING": "yellow",
    "COMPENSATION_FAILED": "bold red",
    "FAILED": "red",
    "MANUAL_REQUIRED": "bold red",
    "UNKNOWN": "magenta",
    "RECONCILING": "magenta",
    "RUNNING": "cyan",
    "WAITING": "cyan",
}


class ReaderGone(Exception):
    """Whoever read our output has gone, as `head` does; nobody is left to tell."""


class _Console(Console):
    """Rich's console, without its own way of ending the process."""

    def on_broken_pipe(self) -> None:
        raise ReaderGone


def clean(text: str) -> str:
    """Replace control characters, so that stored text can neither colour nor steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def rfc3339(instant: datetime) -> str:
    """Write an instant in RFC 3339, in UTC with a Z."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def span(length: timedelta) -> str:
    """Write a duration in its one or two largest units: 40ms, 3.2s, 4m, 2h 5m, 3d 4h.

    Args:
        length: May be negative, when clocks differ; then it is shown as 0ms.
    """
    seconds = max(0.0, length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 60:
        return f"{minutes}m"
    if hours < 24:
        return f"{hours}h {minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours // 24}d {hours % 24}h" if hours % 24 else f"{hours // 24}d"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def json_line(item: Mapping[str, Any]) -> str:
    """Write an object as one line of JSON; times in RFC 3339, durations in seconds."""
    return json.dumps(item, default=_plain, separators=(",", ":"))


def column(name: str, *, right: bool = False, fold: bool = False) -> dict[str, Any]:
    """Describe a column of `Output.table`.

    Args:
        name: Its head.
        right: Align to the right.
        fold: May be folded when the terminal is narrow; other columns keep their words on one line.
    """
    return {
        "header": name,
        "justify": "right" if right else "left",
        "no_wrap": not fold,
        "overflow": "fold" if fold else "ellipsis",
    }


class Output:
    """Where a command writes: results on stdout, words about the progress on stderr.

    Args:
        as_json: Results as JSON lines; words for people are then left out.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = self._make(stderr=False)
        self._errors = self._make(stderr=True)

    @staticmethod
    def _make(*, stderr: bool) -> Console:
        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() else PIPE_WIDTH
        return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)

    def item(self, **fields: Any) -> None:
        """Write one JSON object; nothing without --json."""
        if self.as_json:
            self.line(json_line(fields))

    def line(self, text: str) -> None:
        """Write a line on stdout as it is, never folded or coloured."""
        try:
            print(text, flush=True)
        except BrokenPipeError:
            raise ReaderGone from None

    def say(self, text: str | Text) -> None:
        """Write words for people on stdout; nothing with --json."""
        if not self.as_json:
            self._console.print(Text(clean(text)) if isinstance(text, str) else text)

    def note(self, text: str) -> None:
        """Write progress or a remark on stderr, dim on a terminal; nothing with --json."""
        if not self.as_json:
            self._errors.print(Text(clean(text), style="dim"))

    def table(self, columns: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[str | Text]]) -> None:
        """Write a table for people; columns that are empty in every row are left out."""
        if self.as_json:
            return
        kept = [n for n in range(len(columns)) if any(len(row[n]) for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for n in kept:
            table.add_column(**columns[n])
        for row in rows:
            table.add_row(
                *(Text(clean(cell)) if isinstance(cell, str) else cell for cell in (row[n] for n in kept))
            )
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as captured:
            self._console.print(table)
        self.line("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))

    @property
    def width(self) -> int:
        """Width of stdout, in columns."""
        return self._console.width

    def listing(self, columns: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> None:
        """Write rows for people whose last column, and more, may stand on lines of their own below them."""
        for line in () if self.as_json else lay_out(columns, entries, self.width):
            self._console.print(line, soft_wrap=True)

    def page(self, text: str) -> None:
        """Write Markdown for people: as a page on a terminal, else as it is."""
        if not self.as_json and self._console.is_terminal:
            from rich.markdown import Markdown

            self._console.print(Markdown(text))
        else:
            self.say(text)

    def hanging(self, head: Text, text: str) -> None:
        """Write a paragraph for people under a head; folded lines start where its first one does."""
        if not self.as_json:
            self._console.print(self._hang(self._console, head, text), soft_wrap=True)

    @staticmethod
    def _hang(console: Console, head: Text, text: str) -> Text:
        indent = " " * len(head)
        lines = [
            line
            for part in text.splitlines()
            for line in textwrap.wrap(part, max(20, console.width - len(indent) - 1), break_on_hyphens=False)
            or [""]
        ]
        return Text.assemble(head, f"\n{indent}".join(lines))

    def error(self, code: str, text: str) -> None:
        """Write an error on stderr: code and text for people, or {"error": {"code", "text"}}."""
        if self.as_json:
            print(json_line({"error": {"code": code, "text": text}}), file=sys.stderr, flush=True)
            return
        head = Text(f"{code} ", style="bold red")
        hint = Text(f"\n{' ' * len(head)}`milepost explain {code}` says more.", style="dim")
        self._errors.print(self._hang(self._errors, head, clean(text)) + hint, soft_wrap=True)


def state_text(state: str, words: str = "") -> Text:
    """Return a state in its colour, followed by words."""
    return Text.assemble((state, STATE_STYLES.get(state, "")), clean(words))
