"""Handlers that take events together: one call for a run of them, instead of one for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from ..schemas.transaction import Transaction
from .model import Item


class Together:
    """A handler of several events, which is also one of a single event, for what is tried alone.

    Args:
        handler: Takes a sequence of events, and the transaction.
    """

    def __init__(self, handler: Callable[[Sequence[Any], Transaction], Awaitable[None]]) -> None:
        self.handler = handler

    async def __call__(self, event: Any, tx: Transaction) -> None:
        """Handle one event."""
        await self.handler([event], tx)


def runs(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield what is handed over in one call: a single item, or neighbours that one handler takes together."""
    start = 0
    for end in range(1, len(items) + 1):
        together = isinstance(items[start].handler, Together)
        if not together or end == len(items) or items[end].handler is not items[start].handler:
            yield items[start:end]
            start = end
