"""Looking after the items of a fan-out: counting what has ended, giving out what comes next, stopping what runs.

A turn is one transaction that holds the list's row and never writes the run's: it counts, gives out, and leaves, so
that no two give out more than there is room for. Each turn reads what is there and does what is missing, so it may be
repeated. Only when every item has ended the run is told, once, and decides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..sagas.facts import ChildSeen
from ..sagas.model import Run, Step
from ..sagas.specs import EachSpec
from ..sagas.words import CHILD_INPUT, CHILD_STOPPING, clean
from ..schemas.messages import TimerMessage
from ..schemas.states import WELL_ENDED, ItemState, RunState
from ..streams.queries import Queries
from ..streams.reader_lane import getting_on
from .engine import Engine
from .handing import hand_over
from .joining import stop
from .starting_many import Begun, Wanted, start_next

#: Most items that one turn gives out, and most that it gives up.
GIVEN_OUT = 200
GIVEN_UP = 10_000
#: Runs that are cancelled at once: each takes a connection.
STOPPED = 4


class Sql(Queries, file="fanout.sql"):
    """Queries of this module."""

    items_by_index: str
    store_items: str
    store_list: str
    forget_items: str
    lock_list: str
    waiting_row: str
    lists_of: str
    started_runs: str
    end_items: str
    next_items: str
    give_out: str
    store_numbers: str
    begin_again: str
    give_up: str
    let_go: str


@dataclass(frozen=True, slots=True)
class Place:
    """Which node of which run."""

    run: UUID
    step: str
    iteration: str

    @classmethod
    def of(cls, run: UUID, step: Step) -> Place:
        """Return the place of a row."""
        return cls(run, step.name, step.iteration)

    @property
    def key(self) -> tuple[UUID, str, str]:
        """As the tables have it."""
        return (self.run, self.step, self.iteration)


@dataclass
class Turn:
    """A list under its lock.

    Attributes:
        parent: The run, without its input and its rows, of that service.
        known: Whether this process has its definition.
        stopping: Whether the node is being stopped.
        generation: That of the node's row.
        wanted: Attempt of the node's row; more than the list's when what has failed is to be given out again.
        more: Whether another turn has something to do at once.
        stop: Runs that are to be cancelled.
    """

    place: Place
    parent: Run
    service: str
    stopping: bool
    generation: int
    wanted: int
    attempt: int
    total: int
    next: int
    started: int
    succeeded: int
    failed: int
    input_version: int
    known: bool = True
    more: bool = False
    stop: list[UUID] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether every item has been given out and has ended."""
        return self.next >= self.total and not self.started


async def look_after_items(engine: Engine, place: Place, ended: Sequence[UUID] | None = None) -> None:
    """Do for the items of a node what is to be done, and tell its row when all have ended.

    Args:
        ended: Runs that have just ended; None to look at all that have been started.
    """
    unwanted: list[UUID] = []
    while True:
        turn = await _turn(engine, place, ended)
        if turn is None:
            return
        unwanted += turn.stop
        if not turn.more:
            break
        getting_on()
        ended = ()
    if not turn.known:
        message = TimerMessage(
            run=place.run, step=place.step, iteration=place.iteration, generation=turn.generation
        )
        await hand_over(engine, message)
    elif turn.over:
        await engine.change(place.run, ChildSeen(place.step, place.iteration))
    for first in range(0, len(unwanted), STOPPED):
        some = unwanted[first : first + STOPPED]
        await asyncio.gather(*(stop(engine, turn.parent, child) for child in some))
        getting_on()


async def _turn(engine: Engine, place: Place, ended: Sequence[UUID] | None) -> Turn | None:
    async with engine.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        async with connection.transaction():
            await connection.execute(Sql.items_by_index)
            listed = await connection.fetchrow(Sql.lock_list, *place.key)
            row = None if listed is None else await connection.fetchrow(Sql.waiting_row, *place.key)
            if listed is None or row is None:
                return None
            turn = _begun(place, listed, row)
            await _take(engine, connection, turn, ended)
            numbers = (turn.attempt, turn.next, turn.started, turn.succeeded, turn.failed)
            if numbers != tuple(
                listed[name] for name in ("attempt", "next", "started", "succeeded", "failed")
            ):
                await connection.execute(Sql.store_numbers, *place.key, *numbers)
    return turn


def _begun(place: Place, listed: asyncpg.Record, row: asyncpg.Record) -> Turn:
    parent = Run(
        id=row["id"],
        tenant=row["tenant"],
        saga=row["saga"],
        key=row["key"],
        definition=row["definition"],
        shape=row["shape"],
        input_version=row["input_version"],
        input=None,
        state=RunState(row["state"]),
        correlation_id=row["correlation_id"],
        traceparent=row["traceparent"],
        cause=row["cause"],
        no_undo=row["no_undo"],
    )
    return Turn(
        place,
        parent,
        stopping=row["code"] == CHILD_STOPPING,
        generation=row["generation"],
        wanted=row["attempt"],
        service=row["service"],
        **dict(listed),
    )


async def _take(
    engine: Engine, connection: asyncpg.Connection[Any], turn: Turn, ended: Sequence[UUID] | None
) -> None:
    changes = engine.changes
    definition = changes.definitions.of(turn.parent) if turn.service == changes.service else None
    node = None if definition is None else definition.node(turn.place.step)
    if node is None or node.each is None:
        # What has ended is counted all the same: nobody else is told of it.
        turn.known = False
        await _count(connection, turn, ended)
        return
    if turn.attempt < turn.wanted:
        await connection.execute(Sql.begin_again, *turn.place.key)
        turn.attempt, turn.next, turn.failed = turn.wanted, 0, 0
    await _count(connection, turn, ended)
    if turn.stopping:
        await _stop(connection, turn, everything=ended is None)
    else:
        await _give_out(engine, connection, turn, node.each)


async def _count(connection: asyncpg.Connection[Any], turn: Turn, ended: Sequence[UUID] | None) -> None:
    """Count the items whose runs have ended."""
    if ended is None:
        ended = [row["child_id"] for row in await connection.fetch(Sql.started_runs, *turn.place.key)]
    if not ended:
        return
    row = await connection.fetchrow(Sql.end_items, *turn.place.key, ended, turn.stopping)
    assert row is not None, "a count has a row"
    turn.started -= row["ended"]
    turn.succeeded += row["succeeded"]
    turn.failed += row["failed"]


async def _stop(connection: asyncpg.Connection[Any], turn: Turn, *, everything: bool) -> None:
    """Give up what has not begun, let go what somebody else has started, and find what is to be cancelled."""
    if turn.next < turn.total:
        until = min(turn.next + GIVEN_UP, turn.total)
        await connection.execute(Sql.give_up, *turn.place.key, turn.next, until)
        turn.next = until
        turn.more = turn.next < turn.total
    if everything:
        turn.started -= len(await connection.fetch(Sql.let_go, *turn.place.key))
        turn.stop = [row["child_id"] for row in await connection.fetch(Sql.started_runs, *turn.place.key)]


async def _give_out(engine: Engine, connection: asyncpg.Connection[Any], turn: Turn, spec: EachSpec) -> None:
    """Start the runs of the next items, as far as there is room."""
    room = min(spec.concurrency - turn.started, GIVEN_OUT)
    if room <= 0 or turn.next >= turn.total:
        return
    rows = await connection.fetch(Sql.next_items, *turn.place.key, turn.next, room)
    if not rows:
        turn.next = turn.total
        return
    wanted = [_wanted(spec, turn.input_version, row) for row in rows]
    begun = await start_next(engine.changes, connection, spec.saga, turn.parent, wanted)
    items = list(zip(rows, begun, strict=False))
    states = [_state(one) for one in begun]
    await connection.execute(
        Sql.give_out,
        *turn.place.key,
        [row["number"] for row, _ in items],
        states,
        [one.id for one in begun],
        [one.joined for one in begun],
        [one.code or _ended_badly(one) for one in begun],
        [one.message for one in begun],
    )
    turn.next = items[-1][0]["number"] + 1
    turn.started += states.count(ItemState.STARTED)
    turn.succeeded += states.count(ItemState.SUCCEEDED)
    turn.failed += states.count(ItemState.FAILED)
    turn.more = turn.next < turn.total and turn.started < spec.concurrency


def _wanted(spec: EachSpec, version: int, row: asyncpg.Record) -> Wanted:
    suffix = f"~{row['attempt']}" if row["attempt"] > 1 else ""
    try:
        return Wanted(spec.definition.decode_input(json.loads(row["input"]), version), suffix)
    except Exception as error:  # a user's validator or upcaster may raise anything
        return Wanted(Begun(code=CHILD_INPUT, message=clean(f"its input cannot be read: {error}")))


def _state(one: Begun) -> ItemState:
    if one.code is not None:
        return ItemState.FAILED
    if one.state is None:
        return ItemState.STARTED
    return ItemState.SUCCEEDED if one.state in WELL_ENDED else ItemState.FAILED


def _ended_badly(one: Begun) -> str | None:
    return None if one.state is None or one.state in WELL_ENDED else f"CHILD_{one.state}"
