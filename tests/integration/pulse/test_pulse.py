"""Heartbeats of a worker on a real database: what they keep, what they refuse, and a zombie's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from milepost import Context, Milepost, Repeat, Retry, RunRef, RunState, Saga, Transaction
from milepost.consumers.pulse import MAX_PROGRESS_BYTES
from milepost.sagas.facts import Act, Stale, Wake
from milepost.testing import open_kit
from pydantic import BaseModel, SecretStr

from tests.support.engine import Rig, rig
from tests.support.kitshop import NOWHERE
from tests.support.proxy import proxied
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on


class Order(BaseModel):
    id: str


class Cursor(BaseModel):
    done: int


class Elsewhere(BaseModel):
    place: str


class Wide(BaseModel):
    text: str


class Hidden(BaseModel):
    key: Any


Work = Callable[[Context[Order]], Awaitable[None]]


def one_step(work: Work) -> Saga[Order]:
    """A saga of one step that may run again at once."""
    saga = Saga("one", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.SAFE, retry=Retry(attempts=2, first=timedelta(milliseconds=1)))
    async def act(ctx: Context[Order]) -> None:
        await work(ctx)

    saga.flow(act)
    return saga


async def taken(it: Rig, hand: Hand, saga: Saga[Order]) -> RunRef:
    run = await it.start(saga, Order(id="o-1"))
    assert await hand.take(run.id, "one", "act")
    return run


async def code(it: Rig, run: RunRef) -> tuple[str, str]:
    """Code and message of the last failure of the step."""
    query = (
        "SELECT data ->> 'code', data ->> 'message' FROM milepost.history "
        "WHERE run_id = $1 AND event IN ('step.failed', 'step.late_result') ORDER BY n DESC LIMIT 1"
    )
    return tuple(await it.row(query, run.id))


async def test_a_zombies_heartbeat_changes_nothing_and_ends_it(database_url: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    went_on: list[str] = []

    async def work(ctx: Context[Order]) -> None:
        await ctx.heartbeat(Cursor(done=1))
        begun.set()
        await go.wait()
        await ctx.heartbeat(Cursor(done=2))
        went_on.append("effect")

    saga = one_step(work)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        run = await taken(it, hand, saga)
        await begun.wait()
        held = await it.row("SELECT * FROM milepost.step WHERE run_id = $1", run.id)
        assert held["progress"] == '{"done": 1}'
        await it.engine.change(run.id, Stale("act", held["fence"], held["started_at"]))
        before = await it.row("SELECT * FROM milepost.step WHERE run_id = $1", run.id)
        assert before["state"] == "PENDING" and before["progress"] == '{"done": 1}', "the next try reads it"
        go.set()
        await until(hand.idle, what="the zombie to end")
        assert await it.row("SELECT * FROM milepost.step WHERE run_id = $1", run.id) == before
        told, words = await code(it, run)
    assert (told, went_on) == ("MP370", [])
    assert words.startswith("one/o-1, step act, try 1: the step is no longer this process's")


async def test_a_heartbeat_says_that_the_run_was_cancelled(database_url: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    told: list[bool] = []

    async def work(ctx: Context[Order]) -> None:
        told.append(ctx.should_stop())
        begun.set()
        await go.wait()
        told.append(ctx.should_stop())
        await ctx.heartbeat()
        told.append(ctx.should_stop())

    saga = one_step(work)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        run = await taken(it, hand, saga)
        await begun.wait()
        await it.engine.change(run.id, Act("cancel", by="ann", reason="test"))
        go.set()
        await until(hand.idle, what="the step to end")
        assert (await it.states(run.id))[""] == "CANCELLED"
    assert told == [False, False, True]


@pytest.mark.parametrize(
    ("said", "expected", "words"),
    [
        (Wide(text="x" * MAX_PROGRESS_BYTES), "MP371", "bytes of JSON, and 8192 are kept at most"),
        (Hidden(key=SecretStr("s3cret")), "MP342", "field key is a SecretStr"),
        (Wide(text="a\x00b"), "MP342", "U+0000"),
    ],
)
async def test_progress_that_cannot_be_kept_is_refused(
    database_url: str, said: BaseModel, expected: str, words: str
) -> None:
    async def work(ctx: Context[Order]) -> None:
        await ctx.heartbeat(said)

    saga = one_step(work)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        run = await taken(it, hand, saga)
        await until(hand.idle, what="the step to end")
        told, message = await code(it, run)
        assert await it.value("SELECT progress FROM milepost.step WHERE run_id = $1", run.id) is None
    assert told == expected and words in message and "s3cret" not in message


async def test_progress_of_another_class_is_an_error_and_not_a_new_beginning(database_url: str) -> None:
    async def work(ctx: Context[Order]) -> None:
        if ctx.attempt == 1:
            await ctx.heartbeat(Cursor(done=1))
            raise TimeoutError
        ctx.progress(Elsewhere)

    saga = one_step(work)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        run = await taken(it, hand, saga)
        await until(hand.idle, what="the first try")
        await it.clock("1 minute")
        row = await it.row("SELECT generation FROM milepost.step WHERE run_id = $1", run.id)
        await it.engine.change(run.id, Wake("act", row["generation"]))
        assert await hand.take(run.id, "one", "act")
        await until(hand.idle, what="the second try")
        assert (await code(it, run))[0] == "MP373"


async def test_a_heartbeat_waits_for_the_database_as_long_as_the_lease_holds(database_url: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(ctx: Context[Order]) -> None:
        begun.set()
        await go.wait()
        await ctx.heartbeat(Cursor(done=7))

    saga = one_step(work)
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        async with worker_on(through, it.service) as hand:
            run = await taken(it, hand, saga)
            await begun.wait()
            proxy.lose(b"SET progress")
            go.set()
            await until(hand.idle, what="the step to end")
        assert proxy.lost == 1, "the fault did not happen"
        assert (await it.states(run.id))[""] == "SUCCEEDED"
        assert await it.value("SELECT progress FROM milepost.step WHERE run_id = $1", run.id) == '{"done": 7}'


async def test_a_transactional_step_may_beat_but_keeps_no_progress(database_url: str) -> None:
    saga = Saga("one", version=1, input=Order, key=lambda order: order.id)
    beaten: list[int] = []

    @saga.tx_step(retry=Retry(attempts=1))
    async def act(ctx: Context[Order], tx: Transaction) -> None:
        await ctx.heartbeat()
        beaten.append(ctx.attempt)
        await ctx.heartbeat(Cursor(done=1))

    saga.flow(act)
    async with rig(database_url, saga) as it, worker_on(database_url, it.service) as hand:
        run = await taken(it, hand, saga)
        await until(hand.idle, what="the step to end")
        assert (await code(it, run))[0] == "MP372"
    assert beaten == [1]


async def test_in_the_kit_a_try_after_a_crash_reads_what_the_last_one_said() -> None:
    read: list[Cursor | None] = []

    async def work(ctx: Context[Order]) -> None:
        read.append(ctx.progress(Cursor))
        await ctx.heartbeat(Cursor(done=ctx.attempt))

    saga = one_step(work)
    async with open_kit(Milepost("one", sagas=[saga], settings=NOWHERE)) as kit:
        kit.crash(next(iter(saga.nodes)), when="after_effect")
        await kit.until(await kit.start(saga, Order(id="o-1")), RunState.SUCCEEDED)
    assert read == [None, Cursor(done=1)]
