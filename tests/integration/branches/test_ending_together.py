"""Interleaving 3: branches end at the same instant, on connections of their own; what follows begins exactly once.

Every shape, every number of branches that fail; the ends are decided on the same rows, or the first that is stored is
held before its commit until the others wait for its row. One by one, and many runs in a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from milepost import Event, Saga, Then, all_of
from milepost.consumers import changes, store, store_many, together
from milepost.consumers.changes import Changes
from milepost.inbox.signals import NewSignal, store_signals
from milepost.schemas.ids import SystemIds
from milepost.schemas.messages import ResumeMessage, TimerMessage

from tests.support.engine import rig
from tests.support.joins import (
    BRANCHES,
    NEED,
    Joins,
    Order,
    Outside,
    add_after,
    add_branch,
    joining,
    outside_of,
    saga,
)
from tests.support.waiting import until

MIXES = ("", "a", "ab", "abc")
Hook = Callable[[pytest.MonkeyPatch, "Meeting"], None]


@dataclass
class Meeting:
    """Where those who end branches meet, when it is on.

    Attributes:
        left: How many are still to come; 0: off.
        met: How many have come, of all meetings.
        many: Sizes of the batches that met.
    """

    blocked: Callable[[], Awaitable[int]] | None = None
    left: int = 0
    met: int = 0
    many: list[int] = field(default_factory=list)
    barrier: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(len(BRANCHES)))

    def on(self) -> None:
        """Those who end the three branches next are to meet."""
        assert self.left == 0
        self.left = len(BRANCHES)

    async def read(self) -> None:
        """Return when all three have read."""
        if self.left:
            self.left -= 1
            self.met += 1
            await asyncio.wait_for(self.barrier.wait(), 10)

    async def stored(self) -> None:
        """Return, for the first that has stored, when the two others wait for its row."""
        if not self.left:
            return
        first, self.left = self.left == len(BRANCHES), self.left - 1
        self.met += 1
        if first:
            assert self.blocked is not None
            blocked = self.blocked

            async def others() -> bool:
                return await blocked() >= len(BRANCHES) - 1

            await until(others, what="the others to wait for the row")


def reading(monkeypatch: pytest.MonkeyPatch, meeting: Meeting) -> None:
    """Let all decide on the same rows."""

    async def load_run(*args: Any, **options: Any) -> Any:
        found = await store.load_run(*args, **options)
        await meeting.read()
        return found

    async def load_rows(connection: Any, ids: Any) -> Any:
        found = await store_many.load_rows(connection, ids)
        meeting.many.append(len(found))
        await meeting.read()
        return found

    monkeypatch.setattr(changes, "load_run", load_run)
    monkeypatch.setattr(together, "load_rows", load_rows)


def committing(monkeypatch: pytest.MonkeyPatch, meeting: Meeting) -> None:
    """Hold the first before its commit until the others wait for its row."""
    apply, change_many = Changes.apply, together.change_many

    async def applied(self: Changes, connection: Any, *args: Any, **options: Any) -> Any:
        async with connection.transaction():
            change = await apply(self, connection, *args, **options)
            await meeting.stored()
        return change

    async def changed(connection: Any, by: Changes, batch: Any) -> Any:
        async with connection.transaction():
            done = await change_many(connection, by, batch)
            meeting.many.append(len(batch))
            if done.answers:
                await meeting.stored()
        return done

    monkeypatch.setattr(Changes, "apply", applied)
    monkeypatch.setattr("milepost.consumers.grouping.change_many", changed)


def sagas(outside: Outside) -> list[tuple[Saga[Order], str, str]]:
    """Every shape and mix; the step after is done by who ends the last branch, or announced to another queue."""
    return [
        (saga(outside, shape, failing, queue), shape, failing)
        for shape in NEED
        for failing in MIXES
        for queue in ("default", "later")
    ]


async def check_announced(it: Joins, run: Any, queue: str, joins: bool) -> None:
    """What follows is announced once, or not at all where it is gone on with at once."""
    announced = await it.announced(run.id, "after")
    assert announced == int(joins) if queue == "later" else announced <= int(joins)


@pytest.mark.parametrize("meet", [reading, committing])
async def test_branches_that_end_one_by_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch, meet: Hook
) -> None:
    meeting = Meeting()
    async with outside_of(database_url) as outside:
        cases = sagas(outside)
        async with joining(database_url, outside, *(made for made, _, _ in cases)) as it:
            meeting.blocked = it.blocked
            meet(monkeypatch, meeting)
            for made, shape, failing in cases:
                run = await it.begin(made)
                meeting.on()
                outside.end(run.key, *BRANCHES)
                await it.to_the_end([run])
                await it.check(run, shape, failing)
                joins = len(BRANCHES) - len(failing) >= NEED[shape]
                await check_announced(it, run, made.name.rpartition("_")[2], joins)
            assert meeting.met == len(BRANCHES) * len(cases)
            assert set(meeting.many) <= {1}, "each was a change of its own"


@pytest.mark.parametrize("meet", [reading, committing])
async def test_branches_of_many_runs_that_end_in_batches(
    database_url: str, monkeypatch: pytest.MonkeyPatch, meet: Hook
) -> None:
    """Three workers, each with a branch of all runs: three transactions with the same runs in them."""
    meeting = Meeting()
    async with outside_of(database_url) as outside:
        cases = sagas(outside)
        async with joining(database_url, outside, *(made for made, _, _ in cases)) as it:
            runs = [await it.begin(made) for made, _, _ in cases]
            meeting.blocked = it.blocked
            meet(monkeypatch, meeting)
            meeting.on()
            for run in runs:
                outside.end(run.key, *BRANCHES)
            await it.to_the_end(runs)
            assert meeting.many[:3] == [len(cases)] * 3, "three batches of all runs"
            assert meeting.met == len(BRANCHES)
            for run, (made, shape, failing) in zip(runs, cases, strict=True):
                await it.check(run, shape, failing)
                joins = len(BRANCHES) - len(failing) >= NEED[shape]
                await check_announced(it, run, made.name.rpartition("_")[2], joins)


class Came(Event, type="joins.came", topic="joins", key="id", correlate="id"):
    id: str


def mixed(outside: Outside) -> Saga[Order]:
    """A step, a wait and a timer side by side, and a step after them."""
    made = Saga("mixed", version=1, input=Order, key=lambda order: order.id)
    branch = add_branch(made, outside, "a")
    wait = made.wait(
        "came", Came, match=lambda v: v.input.id, timeout=timedelta(days=1), on_timeout=Then.PERSON
    )
    made.flow(
        all_of(branch, wait, made.timer("pause", timedelta(hours=1))), add_after(made, outside, "later")
    )
    return made


@pytest.mark.parametrize("meet", [reading, committing])
async def test_a_step_a_wait_and_a_timer_end_together(
    database_url: str, monkeypatch: pytest.MonkeyPatch, meet: Hook
) -> None:
    """By a worker and two orchestrators, each on connections of its own."""
    meeting = Meeting()
    async with outside_of(database_url) as outside:
        made = mixed(outside)
        async with (
            joining(database_url, outside, made) as it,
            rig(database_url, made) as one,
            rig(database_url, made) as two,
        ):
            run = await it.it.start(made, Order(id="mixed"))
            assert await it.hands[0].take(run.id, "mixed", "a")
            await until(lambda: outside.here, what="the step to be done")
            event = NewSignal(
                id=SystemIds().new(),
                tenant="",
                source="/",
                event_id="e",
                type="joins.came",
                key="mixed",
                payload='{"id": "mixed"}',
            )
            async with outside.pool.acquire() as connection, connection.transaction():
                (matched,) = (await store_signals(connection, [event])).matched
            await it.it.clock("2 hours")
            it.seen = await it.it.value("SELECT max(seq) FROM milepost.outbox")
            meeting.blocked = it.blocked
            meet(monkeypatch, meeting)
            meeting.on()
            outside.end("mixed", "a")
            await asyncio.gather(
                one.orchestrator.resume(
                    ResumeMessage(run=run.id, step="came", generation=matched.generation)
                ),
                two.orchestrator.wake(TimerMessage(run=run.id, step="pause", generation=1)),
            )
            await it.to_the_end([run])
            assert meeting.met == len(BRANCHES)
            assert await it.ledger(run) == ["a", "after"]
            assert (await it.announced(run.id, "after"), await it.joined(run)) == (1, 1)
            assert set((await it.it.states(run.id)).values()) == {"SUCCEEDED"}
            assert await it.it.value("SELECT count(*) FROM milepost.step WHERE name = 'after'") == 1
