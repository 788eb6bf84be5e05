"""What the pytest plugin and open kits know of each other. Loaded in every test run, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Stand in for MILEPOST_DATABASE_URL and MILEPOST_KAFKA while a user's module is imported that reads its settings at
#: once. Names under .invalid never exist (RFC 2606), so nothing can be reached by mistake.
PLACEHOLDER_DATABASE_URL = "postgresql://placeholder@milepost.invalid:5432/placeholder"
PLACEHOLDER_KAFKA = "milepost.invalid:9092"

_open: list[Callable[[], str]] = []
_kept: list[str] = []


class NotReached(AssertionError):
    """`until` or `until_step` waited in vain; the text holds the run's timeline."""


@contextmanager
def reporting(report: Callable[[], str]) -> Iterator[None]:
    """Let a failing test's report show what the kit saw.

    Args:
        report: Returns the text; called while the kit is open.
    """
    _open.append(report)
    try:
        yield
    finally:
        _open.remove(report)


def keep(text: str) -> None:
    """Keep the text of a kit that closes because its test fails."""
    _kept.append(text)


def forget() -> None:
    """Forget what closed kits left."""
    _kept.clear()


def take() -> str:
    """Return what closed kits left and open kits say now."""
    texts = [*_kept, *(report() for report in _open)]
    forget()
    return "\n\n".join(text for text in texts if text)
