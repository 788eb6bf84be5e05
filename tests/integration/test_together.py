"""Changes of many runs at once: one transaction, and what does not fit in it is done alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost import Command, Context, Event, Repeat, Saga, Then
from milepost.consumers import store_many, together
from milepost.consumers.batching import ToStore
from milepost.consumers.changes import Change
from milepost.outbox.model import message_row
from milepost.sagas.facts import Act, Claim, Replied, Succeeded, TryFailed
from milepost.schemas.envelope import Record
from milepost.schemas.ids import Ids
from milepost.schemas.messages import TimerMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig, worker_id
from tests.support.proxy import Proxy, proxied
from tests.support.waiting import until
from tests.support.workers import worker_on


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int | str = 1


class Came(Event, type="together.came", topic="together", key="id", correlate="id"):
    id: str


def plain() -> Saga[Order]:
    """Two steps."""
    made = Saga("plain", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE)
    async def first(ctx: Context[Order]) -> Number:
        return Number()

    @made.step(repeat=Repeat.SAFE)
    async def last(ctx: Context[Order]) -> Number:
        return Number()

    made.flow(first, last)
    return made


def waits() -> Saga[Order]:
    """A step and a wait."""
    made = Saga("waits", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE)
    async def first(ctx: Context[Order]) -> Number:
        return Number()

    made.flow(
        first,
        made.wait(
            "came", Came, match=lambda v: v.input.id, timeout=timedelta(hours=1), on_timeout=Then.CANCEL
        ),
    )
    return made


class Told(Event, type="together.told", topic="together-told", key="id"):
    id: str


class Ask(Command[Told], type="together.ask", topic="together-asked", key="id"):
    id: str


def asks(*names: str) -> Saga[Order]:
    """Commands one after the other."""
    made = Saga("asks", version=1, input=Order, key=lambda order: order.id)
    for name in names:
        made.command(
            name,
            lambda view: Ask(id=view.input.id),
            reply=Told,
            timeout=timedelta(minutes=1),
            repeat=Repeat.SAFE,
            no_undo="nothing is done",
        )
    made.flow(*made.nodes)
    return made


def answered(step: str) -> Replied:
    return Replied(step, "do", 1, "done", {"id": "o"}, 1, type="together.told")


async def started(it: Rig, saga: Saga[Order], count: int) -> list[UUID]:
    return [(await it.start(saga, Order(id=f"o-{n}"))).id for n in range(count)]


async def all_at_once(it: Rig, runs: Sequence[UUID], fact: Any) -> list[Change]:
    """Apply facts at the same moment; every one must have changed something."""
    changes = await asyncio.gather(*(it.engine.change(run, fact) for run in runs))
    assert all(change is not None and change.decision.answer == "changed" for change in changes)
    return [change for change in changes if change is not None]


async def transactions(it: Rig, table: str = "run") -> int:
    """How many transactions wrote the rows that are there now."""
    return int(await it.value(f"SELECT count(DISTINCT xmin::text) FROM milepost.{table}"))


async def check_histories(it: Rig) -> None:
    """Every run's history is numbered without gaps, as far as the run says."""
    rows = await it.database.pool.fetch(
        "SELECT r.history_n, array_agg(h.n ORDER BY h.n) AS numbers FROM milepost.run AS r"
        " JOIN milepost.history AS h ON h.run_id = r.id GROUP BY r.id"
    )
    assert rows
    for row in rows:
        assert row["numbers"] == list(range(1, row["history_n"] + 1))


def done(step: str = "first", value: int | str = 1) -> Succeeded:
    return Succeeded(step, 1, {"value": value})


async def test_many_claims_and_finishes_are_a_transaction_each(database_url: str) -> None:
    saga = plain()
    async with rig(database_url, saga) as it:
        runs = await started(it, saga, 30)
        worker = worker_id()
        claims = await all_at_once(it, runs, Claim("first", worker))
        assert await transactions(it) == 1
        assert {change.decision.run.id for change in claims} == set(runs)
        assert await it.value(
            "SELECT count(*) FROM milepost.step WHERE state = 'RUNNING' AND worker = $1 AND fence = 1 AND attempt = 1",
            worker,
        ) == len(runs)
        finishes = await all_at_once(it, runs, done())
        assert await transactions(it) == 1
        for run, change in zip(runs, finishes, strict=True):
            assert change.decision.run.id == run, "each is told of its own"
            assert await it.states(run) == {"": "RUNNING", "first": "SUCCEEDED", "last": "PENDING"}
        announced = [
            message["run"] for message in await it.outgoing("milepost.work") if message["step"] == "last"
        ]
        assert sorted(announced) == sorted(map(str, runs)), "each next step is announced once"
        await check_histories(it)
        await all_at_once(it, runs, Claim("last", worker))
        await all_at_once(it, runs, done("last"))
        assert await it.value("SELECT count(*) FROM milepost.run_key WHERE outcome = 'SUCCEEDED'") == len(
            runs
        )


async def test_a_step_after_another_needs_no_reading(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who has changed the run meanwhile is seen all the same."""
    reads: list[int] = []

    async def counted(connection: Any, ids: Sequence[UUID]) -> Mapping[UUID, asyncpg.Record]:
        reads.append(len(ids))
        return await store_many.load_rows(connection, ids)

    monkeypatch.setattr(together, "load_rows", counted)
    saga, between = plain(), list[str]()
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        undisturbed, stopped = await started(it, saga, 2)
        await hand.take(undisturbed, "plain", "first")
        await until(hand.idle, what="the end of the run")
        assert (await it.states(undisturbed))[""] == "SUCCEEDED"
        assert reads == [1], "for the claim"

        around = hand.worker._tools.around

        async def cancelled(call: Any, act: Any) -> Any:
            if not between:
                between.append(call.step.name)
                assert await it.engine.change(call.run.id, Act("cancel", "ada", "no more", undo=False))
            return await around(call, act)

        hand.worker._tools = replace(hand.worker._tools, around=cancelled)
        await hand.take(stopped, "plain", "first")
        await until(hand.idle, what="the end of the first step")
        states = await it.states(stopped)
        assert states["first"] == "SUCCEEDED" and states[""] == "CANCELLED", states
        assert between == ["first"] and states.get("last") != "SUCCEEDED"
        await check_histories(it)


async def test_a_reply_to_a_command_needs_no_reading(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what another process has changed meanwhile is seen, also where nothing is written that would show it."""
    reads: list[int] = []

    async def counted(connection: Any, ids: Sequence[UUID]) -> Mapping[UUID, asyncpg.Record]:
        reads.append(len(ids))
        return await store_many.load_rows(connection, ids)

    monkeypatch.setattr(together, "load_rows", counted)
    saga = asks("a", "b", "c", "d")
    async with rig(database_url, saga) as it, rig(database_url, saga) as other:
        here, there = await started(it, saga, 2)
        for step in "abcd":
            assert await it.engine.change(here, answered(step)) is not None
        assert (await it.states(here))[""] == "SUCCEEDED"
        assert reads == [1], "for the first one, which another process has sent"

        assert await it.engine.change(there, answered("a")) is not None
        assert await other.engine.change(there, answered("b")) is not None
        reads.clear()
        change = await it.engine.change(there, answered("c"))
        assert change is not None and change.decision.answer == "changed", (
            "this process has not sent c, and knows nothing of it until it has read the run"
        )
        assert await other.engine.change(there, answered("d")) is not None
        states = await it.states(there)
        assert states == dict.fromkeys(("", *"abcd"), "SUCCEEDED")
        await check_histories(it)


async def test_behind_a_pooler_nothing_is_set_beyond_a_transaction(database_url: str) -> None:
    saga = plain()
    async with rig(database_url, saga, max_size=1, pooler="transaction") as it:
        runs = await started(it, saga, 5)
        claims = [asyncio.create_task(it.engine.change(run, Claim("first", worker_id()))) for run in runs]
        await asyncio.wait_for(asyncio.gather(*claims), 10)
        assert await transactions(it) == 1
        assert await it.value("SELECT current_setting('enable_seqscan')") == "on"


async def test_who_was_faster_in_the_middle_of_a_batch_is_seen(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run moves between its reading and its storing, one is held by another transaction; the rest goes on."""
    saga, there = plain(), worker_id()
    async with rig(database_url, saga) as it, rig(database_url, saga) as other:
        runs = await started(it, saga, 12)
        moved, held = runs[4], runs[7]
        real, batches = store_many.store_decisions, list[int]()

        async def overtaken(connection: Any, many: Sequence[ToStore], ids: Ids) -> Mapping[UUID, datetime]:
            batches.append(len(many))
            if len(batches) == 1:
                assert await other.engine.change(moved, Claim("first", there)) is not None
            return await real(connection, many, ids)

        monkeypatch.setattr(together, "store_decisions", overtaken)
        async with other.database.pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT 1 FROM milepost.run WHERE id = $1 FOR UPDATE", held)
            claims = [asyncio.create_task(it.engine.change(run, Claim("first", worker_id()))) for run in runs]
            others = [claim for run, claim in zip(runs, claims, strict=True) if run != held]
            await asyncio.wait_for(asyncio.gather(*others), 10)
            assert not claims[7].done(), "only it waits for its row"
        answers = await asyncio.gather(*claims)
        won = [answer is not None and answer.decision.claimed is not None for answer in answers]
        assert won == [run != moved for run in runs]
        assert batches == [12, 1]
        assert await it.value("SELECT worker FROM milepost.step WHERE run_id = $1", moved) == there
        assert await it.value("SELECT count(*) FROM milepost.step WHERE fence = 1 AND attempt = 1") == len(
            runs
        )
        await check_histories(it)


async def test_one_that_cannot_be_stored_and_one_that_cannot_be_decided_keep_no_other_back(
    database_url: str,
) -> None:
    """With waits among them: each does what it would do alone."""
    two, waiting = plain(), waits()
    async with rig(database_url, two, waiting) as it:
        runs = [*await started(it, two, 8), *await started(it, waiting, 4)]
        claims = await all_at_once(it, runs, Claim("first", worker_id()))
        assert len(claims) == 12

        def broken(run: Any) -> Any:
            raise ValueError("this one is broken")

        facts: list[Any] = [done(value="a\0b" if n == 2 else n) for n in range(12)]
        facts[5] = broken
        answers = await asyncio.gather(
            *(it.engine.change(run, fact) for run, fact in zip(runs, facts, strict=True)),
            return_exceptions=True,
        )
        assert isinstance(answers[2], asyncpg.UntranslatableCharacterError)
        assert isinstance(answers[5], ValueError)
        for n, run in enumerate(runs):
            states = await it.states(run)
            assert states["first"] == ("RUNNING" if n in {2, 5} else "SUCCEEDED"), n
            if n >= 8:
                assert states == {"": "WAITING", "first": "SUCCEEDED", "came": "WAITING"}
        assert await it.value("SELECT count(*) FROM milepost.wait WHERE state = 'OPEN'") == 4
        await check_histories(it)


async def test_waits_leave_a_batch_without_being_decided_twice(database_url: str) -> None:
    two, waiting = plain(), waits()
    async with rig(database_url, two, waiting) as it:
        runs = [*await started(it, two, 3), *await started(it, waiting, 3)]
        await all_at_once(it, runs, Claim("first", worker_id()))
        asked: list[UUID] = []

        def fact(run: Any) -> Succeeded:
            asked.append(run.id)
            return done()

        await all_at_once(it, runs, fact)
        assert sorted(asked) == sorted(runs)
        assert await transactions(it) == 4, "one for the batch, and one for each wait"


def due(run: UUID, step: str | None, it: Rig, n: int) -> Record:
    row = message_row(
        TimerMessage(run=run, step=step, generation=2),
        topic="rig.timers",
        key=str(run),
        ids=it.service.ids,
        clock=it.service.clock,
        tenant="",
        service="rig",
        correlation_id=None,
        traceparent=None,
    )
    assert row.payload is not None
    return Record(
        topic="rig.timers",
        partition=0,
        offset=n,
        timestamp_ms=0,
        key=str(run).encode(),
        value=row.payload,
        headers=[(name, text.encode()) for name, text in row.headers.items()],
    )


async def test_a_poll_of_timers_is_one_transaction_although_a_run_of_it_is_broken(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    saga = plain()
    async with rig(database_url, saga) as it:
        runs = await started(it, saga, 10)
        await all_at_once(it, runs, Claim("first", worker_id()))
        await all_at_once(it, runs, TryFailed("first", 1, "retry", "AWAY", "away"))
        assert await it.value("SELECT count(*) FROM milepost.step WHERE state = 'RETRY_PENDING'") == 10
        generation = await it.value("SELECT max(generation) FROM milepost.step")
        await it.database.pool.execute("ALTER TABLE milepost.step DROP CONSTRAINT step_kind_check")
        await it.database.pool.execute("UPDATE milepost.step SET kind = 'ODD' WHERE run_id = $1", runs[3])
        await it.database.pool.execute("UPDATE milepost.step SET generation = 2, wake_at = milepost.clock()")
        assert generation is not None
        await it.orchestrator.handle([due(run, "first", it, n) for n, run in enumerate(runs)])
        states = [(await it.states(run))["first"] for run in runs]
        assert states == ["RETRY_PENDING" if n == 3 else "PENDING" for n in range(10)]
        assert (
            await it.value("SELECT count(DISTINCT xmin::text) FROM milepost.run WHERE id <> $1", runs[3]) == 1
        )
        assert [r.getMessage().split(":")[0] for r in caplog.records if "MP432" in r.getMessage()] == [
            f"MP432 milepost.timer of run {runs[3]} could not be acted on, it is announced again"
        ]


class Together:
    """Steps of several runs that end at the same moment; the last of them loses the answer to the next batch."""

    def __init__(self, proxy: Proxy, size: int) -> None:
        self.proxy, self.size = proxy, size
        self.calls: list[str] = []
        self.barrier = asyncio.Barrier(size)

    def saga(self) -> Saga[Order]:
        made = Saga("plain", version=1, input=Order, key=lambda order: order.id)

        @made.step(repeat=Repeat.NEVER)
        async def first(ctx: Context[Order]) -> Number:
            self.calls.append(f"first {ctx.input.id}")
            if await self.barrier.wait() == 0:
                self.proxy.lose(b"step.completed")
            return Number()

        @made.step(repeat=Repeat.NEVER)
        async def last(ctx: Context[Order]) -> Number:
            self.calls.append(f"last {ctx.input.id}")
            return Number()

        made.flow(first, last)
        return made


async def test_a_batch_that_is_not_waited_for_is_decided_anew(database_url: str) -> None:
    """Its statement times out while its connection stands: what was claimed by it is begun all the same, and once."""
    calls: list[str] = []
    saga = Saga("plain", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.NEVER)
    async def first(ctx: Context[Order]) -> None:
        calls.append(ctx.input.id)

    saga.flow(first)
    async with (
        proxied(database_url) as (proxy, through),
        rig(database_url, saga) as it,
        worker_on(through, it.service, slots=6) as hand,
        asyncpg.create_pool(through, min_size=0, command_timeout=0.5) as impatient,
    ):
        runs = await started(it, saga, 6)
        patient, hand.engine._group._pool = hand.engine._group._pool, impatient
        pass_on = proxy.delay(b"step.started")
        taken = await asyncio.gather(
            *(hand.take(run, "plain", "first") for run in runs), return_exceptions=True
        )
        assert [type(answer) for answer in taken] == [TimeoutError] * 6
        assert await it.value("SELECT count(*) FROM milepost.step WHERE state = 'RUNNING'") == 6
        hand.engine._group._pool = patient
        pass_on.set()
        assert await asyncio.gather(*(hand.take(run, "plain", "first") for run in runs)) == [True] * 6
        await until(hand.idle, what="the end of all steps")
        assert await it.value("SELECT count(*) FROM milepost.run WHERE state = 'SUCCEEDED'") == 6
        assert sorted(calls) == [f"o-{n}" for n in range(6)]
        await check_histories(it)


async def test_the_answer_to_a_batch_is_lost(database_url: str) -> None:
    """Interleaving 15 for many: all of them are read again by fence, and none is done twice."""
    async with proxied(database_url) as (proxy, through):
        world = Together(proxy, 6)
        saga = world.saga()
        async with rig(database_url, saga) as it, worker_on(through, it.service, slots=6) as hand:
            runs = await started(it, saga, 6)
            await asyncio.gather(*(hand.take(run, "plain", "first") for run in runs))

            async def ended() -> bool:
                return bool(await it.value("SELECT count(*) = 6 FROM milepost.run WHERE state = 'SUCCEEDED'"))

            await until(ended, within=20, what="the end of all runs")
            assert proxy.lost == 1, "the fault did not happen"
            wanted = [f"{step} o-{n}" for step in ("first", "last") for n in range(6)]
            assert sorted(world.calls) == sorted(wanted), "a lost answer repeats nothing"
            assert (
                await it.value("SELECT count(*) FROM milepost.history WHERE event = 'step.completed'") == 12
            )
            assert (
                await it.value("SELECT count(*) FROM milepost.history WHERE event = 'step.late_result'") == 0
            )
            await check_histories(it)
