"""A position says that all before it is done: it never passes rows that are kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

from milepost.outbox.feeder import Feeder
from milepost.outbox.gathering import LONGEST
from milepost.outbox.position import Page, Position, Row
from milepost.outbox.routing import Routing
from milepost.schemas.ids import SystemClock


def at(xid: int) -> Position:
    return Position((xid, xid, ()), (xid, xid, ()))


def page(n: int) -> Page:
    """One row of one transaction."""
    row: Row = (n, "t", "k", b"{}", "{}")
    return Page([row], Position(at(n).current, at(n + 1).current), at(n + 1), 0)


class Script:
    """A reader that finds two rows, nothing between and behind them."""

    def __init__(self) -> None:
        self.found: list[Page | Position] = [page(1), at(2), at(2), page(2)]

    async def read(self) -> Page | Position:
        return self.found.pop(0) if self.found else at(3)

    async def end(self) -> None:
        pass


class Topics:
    """Knows all topics."""

    def __init__(self) -> None:
        self.partitions = {"t": 1}

    async def look_up(self, topics: Collection[str]) -> dict[str, tuple[str, str]]:
        return {}

    async def meet(self, topics: Collection[str]) -> None:
        pass


async def test_a_position_waits_for_the_rows_that_are_kept() -> None:
    topics, clock, told = cast("Any", Topics()), SystemClock(), list[int]()

    def seen(rows: Any) -> bool:
        told.extend(row[0] for row in rows)
        return True

    feeder = Feeder(
        cast("Any", Script()),
        topics,
        Routing(),
        topics,
        done=set(),
        idle_poll=0.5,
        clock=clock,
        timestamp=lambda: 0,
        seen=seen,
    )
    feeding, began = asyncio.create_task(feeder.run()), clock.monotonic()
    try:
        first = await feeder._line.take()
        took = clock.monotonic() - began
        second = await feeder._line.take()
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError):
            await feeding
    assert isinstance(first, tuple), "a position came first"
    assert ([row[0] for row in first[0].rows], first[0].after) == ([1, 2], at(3))
    assert told == [1, 2]
    assert took >= LONGEST
    assert second == at(3)
