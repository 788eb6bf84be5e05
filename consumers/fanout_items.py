"""Reading the items of a fan-out, page by page, for whoever works on with those that have failed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ..sagas.context import RunRef
from ..schemas.errors import StateError, UsageError
from ..schemas.fanout import FanOutItem
from ..schemas.states import ItemState
from ..schemas.transaction import AnyTx
from ..streams.drivers import run_in
from ..streams.queries import Queries

#: Runs a statement with its arguments and returns its rows.
Fetch: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Any]]
#: Most items of one page.
MOST = 10_000


class Sql(Queries, file="fanout_items.sql"):
    """Queries of this module."""

    items_of: str
    failed_items: str
    list_is_there: str


async def fanout_items(
    tx: AnyTx, run: RunRef, node: str, *, state: ItemState | None, iteration: str, after: int, limit: int
) -> list[FanOutItem]:
    """Do what `Milepost.fanout_items` says; see there."""
    call = "fanout_items()"
    if not 1 <= limit <= MOST:
        raise UsageError(
            "MP395", f"{call}: limit={limit} must be from 1 to {MOST}. Read page by page, with after=."
        )
    connection = await run_in(tx, call)
    found = await read_items(connection, run.id, (node, iteration), state=state, after=after, limit=limit)
    if not found and not await connection(Sql.list_is_there, [run.id, node, iteration]):
        raise StateError(
            "MP396",
            f"{call}: run {run} has no list of {node}{f'#{iteration}' if iteration else ''}. It has not been read yet, "
            "or the run is gone; `milepost runs show` tells.",
        )
    return found


async def read_items(
    fetch: Fetch, run: UUID, place: tuple[str, str], *, state: ItemState | None, after: int, limit: int
) -> list[FanOutItem]:
    """Return the next items after a number, in order.

    Args:
        place: Name of the node, and its round.
        state: Only those in this state; None for all.
    """
    if state is ItemState.FAILED:
        rows = await fetch(Sql.failed_items, [run, *place, after, limit])
    else:
        rows = await fetch(Sql.items_of, [run, *place, after, limit, state and state.value])
    return [_item(*row) for row in rows]


def _item(number: int, key: str, given: Any, *rest: Any) -> FanOutItem:
    state, attempt, child, joined, code, message = rest
    return FanOutItem(
        number=number,
        key=key,
        input=json.loads(given),
        state=ItemState(state),
        attempt=attempt,
        run=child,
        joined=joined,
        code=code,
        message=message,
    )
