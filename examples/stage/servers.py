"""The servers of an example: its own for as long as it runs, or the ones that stay up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from milepost.devstack.databases import drop_database, make_database
from milepost.devstack.stack import Stack, running, up
from rich.console import Console
from rich.text import Text


@contextmanager
def stack(keep: bool, console: Console) -> Iterator[Stack]:
    """Run PostgreSQL and Kafka while the block lasts.

    Args:
        keep: Leave them running.
        console: Where progress goes.

    Raises:
        DevstackError: One of them is not there or does not answer.
    """

    def say(line: str) -> None:
        console.print(Text(line, style="dim"))

    if keep:
        yield up(say=say)
        return
    with running(say=say) as stack:
        yield stack


@contextmanager
def own_database(url: str, name: str) -> Iterator[str]:
    """Make a database and drop it after the block; gives its URL.

    Args:
        url: Any database of the server.
        name: The new one's name.
    """
    try:
        yield make_database(url, name)
    finally:
        drop_database(url, name)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that everything started is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
