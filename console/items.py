"""`milepost runs items`: the items of a fan-out."""

from __future__ import annotations

from rich.text import Text

from ..consumers.fanout_items import Fetch, Sql, read_items
from ..schemas.errors import StateError, UsageError
from ..schemas.fanout import FanOutItem
from ..schemas.states import ItemState
from .listing import Entry, first_line
from .model import RunDetail, run_reference
from .options import Globals
from .output import clean, column, state_text
from .store import reading


async def list_items(
    given: Globals, reference: str, node: str, *, state: str | None, after: int, limit: int
) -> None:
    """Print the items of a node, in the order of its list.

    Args:
        node: Its name, with "#" and the round where it is in a loop.

    Raises:
        UsageError: MP601 for a state that is none.
        StateError: MP647 when the run has no list of that node.
    """
    wanted = _state(state)
    name, _, iteration = node.partition("#")
    async with reading(given.database_url()) as store:
        run = await store.run(await store.find(run_reference(reference)), history=False)
        place = (name, iteration)
        fetch: Fetch = lambda query, arguments: store.fetch(query, *arguments)  # noqa: E731
        rows = await read_items(fetch, run.id, place, state=wanted, after=after, limit=limit)
        there = rows or await store.fetch(Sql.list_is_there, run.id, *place)
    if not there:
        raise StateError(
            "MP647",
            f"{run.run} has no list of items {node}. It has: "
            f"{', '.join(_lists(run)) or 'none'}; a list is there once it has been read.",
        )
    _print(given, run, node, rows)
    if len(rows) == limit:
        given.out.note(f"{limit} items; go on with --after {rows[-1].number}")


def _state(text: str | None) -> ItemState | None:
    if text is None:
        return None
    try:
        return ItemState(text.upper())
    except ValueError:
        raise UsageError(
            "MP601", f"--state {text} is none of {', '.join(state.value for state in ItemState)}."
        ) from None


def _lists(run: RunDetail) -> list[str]:
    return [step.label for step in run.steps if step.items is not None]


def _print(given: Globals, run: RunDetail, node: str, rows: list[FanOutItem]) -> None:
    out = given.out
    for row in rows:
        out.item(of=run.run, node=node, **row.model_dump(mode="json"))
    if not rows:
        out.say("no such items")
        return
    heads = [column("item", right=True), column("key"), column("state"), column("runs", right=True)]
    heads += [column("run"), column("code")]
    out.listing(heads, [_entry(row) for row in rows])


def _entry(row: FanOutItem) -> Entry:
    ran = "" if row.run is None else f"{str(row.run)[:8]}…{' (joined)' if row.joined else ''}"
    cells = [
        Text(str(row.number)),
        Text(clean(row.key)),
        state_text(row.state),
        Text(str(row.attempt)),
        Text(ran),
        Text(clean(row.code or "")),
    ]
    return Entry(cells, clean(first_line(row.message or "")))
