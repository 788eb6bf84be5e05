"""Runs whose branches end at the same instant: workers on connections of their own end them, and a ledger counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
from milepost import (
    Context,
    Event,
    Refused,
    Repeat,
    Retry,
    RunRef,
    Saga,
    all_of,
    at_least,
    best_effort,
    optional,
)
from milepost.schemas.messages import TimerMessage, WorkMessage
from milepost.schemas.states import FINAL_RUN_STATES
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on

BRANCHES = "abc"
#: How many branches each shape needs.
NEED = {"all_of": 3, "at_least": 2, "best_effort": 0, "optional": 0}
LEDGER = "CREATE TABLE ledger (n bigserial PRIMARY KEY, run text NOT NULL, what text NOT NULL)"
TWICE = Retry(attempts=2)


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int = 1


class Joined(Event, type="joins.joined", topic="joins", key="id"):
    id: str


@dataclass
class Outside:
    """What the steps do: a branch writes to the ledger, and returns when it is told to.

    Attributes:
        pool: Of its own.
        here: Branches that have done what they do, and not returned; with the name of their run.
    """

    pool: asyncpg.Pool[Any]
    here: set[tuple[str, str]] = field(default_factory=set)
    _may_end: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)

    async def note(self, run: str, what: str, *, dedupe: bool = True) -> None:
        """Write to the ledger; with `dedupe` the second time is as if it had not been."""
        query = (
            "INSERT INTO ledger (run, what) SELECT $1, $2 WHERE NOT ($3 AND EXISTS"
            " (SELECT FROM ledger WHERE run = $1 AND what = $2))"
        )
        await self.pool.execute(query, run, what, dedupe)

    async def told(self, run: str, what: str) -> None:
        """Wait until a branch is told to end."""
        self.here.add((run, what))
        try:
            await self._event(run, what).wait()
        finally:
            self.here.discard((run, what))

    def end(self, run: str, *names: str) -> None:
        """Tell branches to end."""
        for name in names:
            self._event(run, name).set()

    def replace(self, run: str, what: str) -> asyncio.Event:
        """Let who waits now go on waiting, for the event that is returned; who comes later is told as before."""
        return self._may_end.pop((run, what))

    def _event(self, run: str, what: str) -> asyncio.Event:
        return self._may_end.setdefault((run, what), asyncio.Event())


def saga(outside: Outside, shape: str, failing: str, queue: str) -> Saga[Order]:
    """Three branches, of which some are refused, and a step after them in a queue."""
    name = f"{shape}_{failing or 'none'}_{queue}"
    made = Saga(name, version=1, input=Order, key=lambda order: order.id)
    branches = [add_branch(made, outside, name, refused=name in failing) for name in BRANCHES]
    made.flow(*_together(shape, branches), add_after(made, outside, queue))
    return made


def add_after(made: Saga[Order], outside: Outside, queue: str) -> Any:
    """Add the step that follows: it tells of the join by an event."""

    @made.step(repeat=Repeat.NEVER, queue=queue)
    async def after(ctx: Context[Order]) -> Number:
        await outside.note(ctx.input.id, "after", dedupe=False)
        ctx.emit(Joined(id=ctx.input.id))
        return Number()

    return after


def add_branch(made: Saga[Order], outside: Outside, name: str, *, refused: bool = False) -> Any:
    """Add a step that ends when it is told to, and its undo."""

    @made.step(repeat=Repeat.SAFE, name=name, retry=TWICE)
    async def act(ctx: Context[Order]) -> Number:
        if not refused:
            await outside.note(ctx.input.id, name)
        await outside.told(ctx.input.id, name)
        if refused:
            raise Refused("TOLD_TO")
        return Number()

    async def back(ctx: Context[Order], done: Number) -> None:
        await outside.note(ctx.input.id, f"undo {name}")

    back.__name__ = f"undo_{name}"
    act.undo(back)
    return act


def _together(shape: str, branches: Sequence[Any]) -> list[Any]:
    if shape == "optional":
        return [all_of(*(optional(branch) for branch in branches))]
    if shape == "at_least":
        return [at_least(NEED[shape], *branches)]
    return [(all_of if shape == "all_of" else best_effort)(*branches)]


@dataclass
class Joins:
    """A service and one worker per branch, each with a pool of its own.

    Attributes:
        seen: Outbox rows up to here are none that are to be handed over.
        handed: Those after it that were.
    """

    it: Rig
    outside: Outside
    hands: list[Hand]
    seen: int = 0
    handed: set[int] = field(default_factory=set)

    async def begin(self, saga: Saga[Order]) -> RunRef:
        """Start a run, and let each worker have its branch; returns when all have done what they do."""
        run = await self.it.start(saga, Order(id=saga.name))
        for name, hand in zip(BRANCHES, self.hands, strict=True):
            assert await hand.take(run.id, saga.name, name), name
        wanted = {(saga.name, name) for name in BRANCHES}
        await until(lambda: wanted <= self.outside.here, what=f"the branches of {saga.name}")
        self.seen = await self.it.value("SELECT max(seq) FROM milepost.outbox")
        return run

    async def to_the_end(self, runs: Sequence[RunRef]) -> None:
        """Hand over what is announced until the runs are over."""
        ids = [run.id for run in runs]
        final = [state.value for state in FINAL_RUN_STATES]
        query = "SELECT bool_and(state = ANY ($2)) FROM milepost.run WHERE id = ANY ($1)"

        async def over() -> bool:
            await self.hand_over()
            return bool(await self.it.value(query, ids, final))

        await until(over, within=30, what="the runs to end")

    async def wake_to_the_end(self, run: RunRef) -> None:
        """As `to_the_end`, with timers: an hour passes whenever nothing is announced."""
        hours = 0
        while (await self.it.states(run.id))[""] not in FINAL_RUN_STATES:
            hours += 1
            assert hours < 50, await self.it.history(run.id)
            await self.it.clock(f"{hours} hours")
            await self.it.waker.tick()
            for body in await self.it.outgoing("milepost.timer"):
                await self.it.orchestrator.wake(TimerMessage.model_validate(body))
            await self.hand_over()
            await until(self.hands[0].idle, what="the worker to be done")

    async def hand_over(self) -> None:
        """Hand over work that was announced since the last time; a number may be committed after a higher one."""
        rows = await self.it.database.pool.fetch(
            "SELECT seq, payload FROM milepost.outbox WHERE seq > $1 AND type = 'milepost.work' AND seq <> ALL ($2)"
            " ORDER BY seq",
            self.seen,
            list(self.handed),
        )
        for row in rows:
            self.handed.add(row["seq"])
            await self.hands[0].worker.take(WorkMessage.model_validate_json(row["payload"]))

    async def ledger(self, run: RunRef) -> list[str]:
        """Return what happened for a run, in order."""
        rows = await self.it.database.pool.fetch("SELECT what FROM ledger WHERE run = $1 ORDER BY n", run.key)
        return [row["what"] for row in rows]

    async def announced(self, run: UUID, step: str) -> int:
        """Return how often a step was announced to workers."""
        bodies = await self.it.outgoing("milepost.work")
        return sum(body["run"] == str(run) and body["step"] == step for body in bodies)

    async def joined(self, run: RunRef) -> int:
        """Return how many events say that the run has joined."""
        query = "SELECT count(*) FROM milepost.outbox WHERE type = 'joins.joined' AND aggregateid = $1"
        return int(await self.it.value(query, run.key))

    async def check(self, run: RunRef, shape: str, failing: str) -> None:
        """Compare rows, outbox and ledger with what the shape says of these ends."""
        good = [name for name in BRANCHES if name not in failing]
        joins = len(good) >= NEED[shape]
        ledger = await self.ledger(run)
        ended = "SELECT name FROM milepost.step WHERE run_id = $1 AND kind = 'STEP' AND state = 'SUCCEEDED'"
        order = [
            row["name"] for row in await self.it.database.pool.fetch(f"{ended} ORDER BY finish_no", run.id)
        ]
        rows = await self.it.value(
            "SELECT count(*) FROM milepost.step WHERE run_id = $1 AND name = 'after'", run.id
        )
        state = (await self.it.states(run.id))[""]
        place = f"{run.key}: {state} {ledger} {await self.it.history(run.id)}"
        assert sorted(ledger[: len(good)]) == good, place
        assert (rows, await self.joined(run)) == (int(joins), int(joins)), place
        if joins:
            assert (state, order, ledger[len(good) :]) == ("SUCCEEDED", [*order[:-1], "after"], ["after"]), (
                place
            )
        else:
            undone = [f"undo {name}" for name in reversed(order)]
            assert sorted(order) == good and ledger[len(good) :] == undone, place
            assert state == ("COMPENSATED" if good else "FAILED"), place
        await self._numbered(run)

    async def _numbered(self, run: RunRef) -> None:
        numbers = "SELECT array_agg(n ORDER BY n) FROM milepost.history WHERE run_id = $1"
        last = await self.it.value("SELECT history_n FROM milepost.run WHERE id = $1", run.id)
        assert await self.it.value(numbers, run.id) == list(range(1, last + 1)), (
            "a row of history for each change"
        )

    async def blocked(self) -> int:
        """Return how many connections of this database wait for somebody's row."""
        return int(
            await self.outside.pool.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            )
        )


@asynccontextmanager
async def outside_of(url: str) -> AsyncIterator[Outside]:
    """Give the outside world of a database's runs, with an empty ledger."""
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        await pool.execute(LEDGER)
        yield Outside(pool)


@asynccontextmanager
async def joining(url: str, outside: Outside, *sagas: Saga[Order]) -> AsyncIterator[Joins]:
    """Run a worker for each branch, with slots for all sagas at once."""
    async with rig(url, *sagas) as it, AsyncExitStack() as stack:
        hands = [
            await stack.enter_async_context(worker_on(url, it.service, slots=len(sagas) + 4))
            for _ in BRANCHES
        ]
        yield Joins(it, outside, hands)
