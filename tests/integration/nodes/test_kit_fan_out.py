"""Fan-out in the kit: the items run by themselves, and their run goes on once when all have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from milepost import (
    Context,
    FanOut,
    Milepost,
    Refused,
    Repeat,
    Retry,
    RunRef,
    RunState,
    Saga,
    StepState,
    Then,
    at_least,
    loop,
    optional,
)
from milepost.consumers import fanout
from milepost.consumers.children import ended
from milepost.consumers.engine import Engine, changes_of
from milepost.recovery.requests import Request, ask
from milepost.streams.drivers import run_in
from milepost.testing import Kit
from milepost.testing.timeline import MOST, timelines
from pydantic import BaseModel

from tests.support.kitshop import opened

ONCE = Retry(attempts=1)


class Letter(BaseModel):
    """Input of an item."""

    name: str
    text: str = ""


class Mailing(BaseModel):
    """Input of the run: so many letters, of which the first `bad` fail, and what else is odd about the list."""

    id: str
    letters: int
    bad: int = 0
    odd: str = ""


UNDONE: list[str] = []
SENT: list[str] = []


def letter_saga(name: str, *, waits: bool = False) -> Saga[Letter]:
    """Return the saga of a letter, which may wait for an hour before it is posted."""
    saga = Saga(name, version=1, input=Letter, key=lambda given: given.name)

    @saga.step(repeat=Repeat.SAFE, retry=ONCE)
    async def write(ctx: Context[Letter]) -> None: ...

    @write.undo
    async def unwrite(ctx: Context[Letter], done: None) -> None:
        UNDONE.append(ctx.run.key)

    @saga.step(repeat=Repeat.SAFE, retry=ONCE)
    async def post(ctx: Context[Letter]) -> None:
        if "bad" in ctx.input.name and "~" not in ctx.run.key:
            raise Refused("NO_ADDRESS")
        SENT.append(ctx.run.key)

    saga.flow(*([write, saga.timer("pause", timedelta(hours=1))] if waits else [write]), post)
    return saga


letter = letter_saga("kit-letter")
slow = letter_saga("kit-slow-letter", waits=True)


async def letters(ctx: Context[Mailing]) -> AsyncIterator[Letter]:
    given = ctx.input
    for n in range(given.letters):
        yield Letter(name=f"{given.id}-{'bad' if n < given.bad else 'good'}-{n}")
    if given.odd == "same":
        yield Letter(name=f"{given.id}-good-0")
    if given.odd == "other":
        yield Letter(name=f"{given.id}-good-0", text="another")
    if given.odd == "wrong":
        yield Letter(name="")
    if given.odd == "raises":
        raise Refused("NO_LIST")


def mailing(name: str, of: Saga[Letter] = letter, **options: Any) -> tuple[Saga[Mailing], Any]:
    """Return a saga of one fan-out."""
    saga = Saga(name, version=1, input=Mailing, key=lambda given: given.id)
    node = saga.each("send", of, items=letters, **({"no_undo": "letters stay sent"} | options))
    saga.flow(node)
    return saga, node


async def items(kit: Kit, run: RunRef) -> list[Any]:
    """Return the items of a run."""
    query = "SELECT * FROM milepost.fanout_item WHERE run_id = $1 ORDER BY number"
    return await kit._opened.database.pool.fetch(query, run.id)


async def parent(kit: Kit, run: RunRef) -> Any:
    """Return a run's row."""
    return await kit._opened.database.pool.fetchrow("SELECT * FROM milepost.run WHERE id = $1", run.id)


async def asked(service: Milepost, run: RunRef, what: Any) -> None:
    """Have a person do something with the fan-out."""
    async with service.transaction() as tx:
        wanted = Request(run=run.id, what=what, by="ann", reason="mended", step="send")
        await ask(await run_in(tx, "test"), wanted, service.ids, "test")


async def test_a_run_for_each_item_and_one_decision() -> None:
    saga, node = mailing("kit-mailing", concurrency=3)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=10))
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.result(run, node) == FanOut(total=10, succeeded=10, failed=0)
        rows = await items(kit, run)
        assert [(row["key"], row["state"]) for row in rows] == [
            (f"m-good-{n}", "SUCCEEDED") for n in range(10)
        ]
        state = await parent(kit, run)
        assert state["version"] == 4, "it begins, its list is read, and there, and its items have ended"


async def test_the_timelines_leave_out_items_sooner_than_their_run_and_failed_ones_last() -> None:
    saga, _ = mailing("kit-told", min_success=0.5)
    async with opened(saga, letter) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m", letters=10, bad=2))
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)
        told = await timelines(service.settings.dsn)
    assert told.startswith("kit-told/m  PARTIALLY_SUCCEEDED")
    assert told.count("(cause NO_ADDRESS)") == 2
    assert told.count(" after its start") == MOST


async def test_who_cancels_is_told_how_many_items_have_been_done() -> None:
    saga, _ = mailing("kit-cancelled", slow, concurrency=4)
    async with opened(saga, slow) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m", letters=6))
        await kit.advance(timedelta(hours=1))  # four are done, and two wait
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=False, by="ann", reason="seen enough")
        await kit.until(run, RunState.CANCELLED)
        answer = await kit._opened.database.pool.fetchval("SELECT answer FROM milepost.request")
    assert answer == "CANCEL_REQUESTED; done: nothing; under way: send (4 of 6 items done)"


async def test_no_items_are_well() -> None:
    saga, node = mailing("kit-none")
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=0))
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.result(run, node) == FanOut(total=0, succeeded=0, failed=0)


async def test_enough_are_enough_and_the_run_says_that_it_is_not_all() -> None:
    saga, node = mailing("kit-part", min_success=0.75)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=4, bad=1))
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)
        assert await kit.result(run, node) == FanOut(total=4, succeeded=3, failed=1)
        bad = (await items(kit, run))[0]
        assert (bad["state"], bad["code"]) == ("FAILED", "NO_ADDRESS")


async def test_too_few_fail_the_node() -> None:
    saga, _ = mailing("kit-few", min_success=0.75)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=4, bad=2))
        await kit.until(run, RunState.FAILED)
        assert (await parent(kit, run))["cause"] == "ITEMS_FAILED"


async def test_only_what_has_failed_is_begun_again() -> None:
    SENT.clear()
    saga, node = mailing("kit-again", on_failure=Then.PERSON)
    async with opened(saga, letter) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m", letters=5, bad=2))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        await asked(service, run, "retry")
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.result(run, node) == FanOut(total=5, succeeded=5, failed=0)
        assert sorted(SENT) == ["m-bad-0~2", "m-bad-1~2", "m-good-2", "m-good-3", "m-good-4"]
        assert [row["attempt"] for row in await items(kit, run)] == [2, 2, 1, 1, 1]


async def test_who_skips_what_failed_has_succeeded_in_part() -> None:
    saga, _ = mailing("kit-skipped", on_failure=Then.PERSON)
    async with opened(saga, letter) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m", letters=2, bad=1))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        await asked(service, run, "skip")
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)


async def test_an_item_whose_key_has_another_input_fails_and_is_begun_under_its_own_key() -> None:
    saga, _ = mailing("kit-taken", on_failure=Then.PERSON)
    async with opened(saga, letter) as (kit, _, service):
        other = await kit.start(letter, Letter(name="m-good-0", text="mine"))
        await kit.until(other, RunState.SUCCEEDED)
        run = await kit.start(saga, Mailing(id="m", letters=2))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        first, second = await items(kit, run)
        assert (first["state"], first["code"], second["state"]) == ("FAILED", "MP302", "SUCCEEDED")
        await asked(service, run, "retry")
        await kit.advance(timedelta(minutes=1))
        first, _ = await items(kit, run)
        assert (first["code"], first["attempt"]) == ("MP302", 1), "it has had no run, so the key is the same"


async def test_runs_that_are_there_are_joined_under_way_or_over() -> None:
    saga, node = mailing("kit-joined", slow)
    async with opened(saga, slow) as (kit, _, _):
        over = await kit.start(slow, Letter(name="m-good-0"))
        await kit.advance(timedelta(hours=2))
        await kit.until(over, RunState.SUCCEEDED)
        await kit.start(slow, Letter(name="m-good-1"))
        run = await kit.start(saga, Mailing(id="m", letters=3))
        await kit.until_step(run, node, StepState.WAITING)
        await kit.advance(timedelta(minutes=1))
        rows = await items(kit, run)
        assert [(row["joined"], row["state"]) for row in rows] == [
            (True, "SUCCEEDED"),
            (True, "STARTED"),
            (False, "STARTED"),
        ]
        await kit.advance(timedelta(hours=2))
        await kit.until(run, RunState.SUCCEEDED)


@pytest.mark.parametrize("undo", [True, False])
async def test_cancelling_gives_up_what_has_not_begun_and_stops_what_has(undo: bool) -> None:
    UNDONE.clear()
    saga, _ = mailing("kit-cancelled", slow, concurrency=3)
    async with opened(saga, slow) as (kit, _, service):
        other = await kit.start(slow, Letter(name="m-good-0"))
        run = await kit.start(saga, Mailing(id="m", letters=6))
        await kit.advance(timedelta(minutes=1))
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=undo, by="ann", reason="a mistake")
        await kit.until(run, RunState.CANCELLED)
        assert {row["state"] for row in await items(kit, run)} == {"CANCELLED"}
        assert sorted(UNDONE) == (["m-good-1", "m-good-2"] if undo else [])
        assert await kit._opened.database.pool.fetchval("SELECT count(*) FROM milepost.run") == 4
        await kit.advance(timedelta(hours=2))
        await kit.until(other, RunState.SUCCEEDED)


async def test_a_long_list_is_given_up_in_parts_and_what_runs_is_stopped_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "GIVEN_UP", 2)
    saga, node = mailing("kit-long", slow, concurrency=3)
    async with opened(saga, slow) as (kit, _, service):
        run = await kit.start(saga, Mailing(id="m", letters=12))
        await kit.until_step(run, node, StepState.WAITING)
        await kit.advance(timedelta(seconds=1))
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=True, by="ann", reason="a mistake")
        await kit.advance(timedelta(seconds=1))
        assert (await parent(kit, run))["state"] == "CANCELLED", "without another look at it"
        assert {row["state"] for row in await items(kit, run)} == {"CANCELLED"}


async def test_a_process_without_the_definition_counts_what_has_ended_and_hands_the_rest_over() -> None:
    saga, node = mailing("kit-elsewhere", slow, concurrency=3)
    async with opened(saga, slow) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=6))
        await kit.until_step(run, node, StepState.WAITING)
        await kit.advance(timedelta(seconds=1))
        pool = kit._opened.database.pool
        over = await pool.fetch(
            "UPDATE milepost.run SET state = 'SUCCEEDED', wake_at = NULL, finished_at = milepost.clock()"
            " WHERE saga = $1 RETURNING id",
            slow.name,
        )
        other = Milepost(kit._opened.service.name, sagas=[slow], settings=kit._opened.settings)
        await ended(Engine(changes_of(other), pool), [row["id"] for row in over])
        counted = await pool.fetchrow("SELECT * FROM milepost.fanout WHERE run_id = $1", run.id)
        assert counted is not None
        assert (counted["next"], counted["started"], counted["succeeded"]) == (3, 0, 3)
        assert await pool.fetchval("SELECT kind FROM milepost.handover WHERE run_id = $1", run.id) == "timer"


@pytest.mark.parametrize("fails", ["later", "itself"])
async def test_the_undo_gets_what_became_of_the_items(fails: str) -> None:
    told: list[FanOut] = []
    saga = Saga("kit-undone", version=1, input=Mailing, key=lambda given: given.id)
    node = saga.each("send", letter, items=letters, min_success=0.5)

    @node.undo
    async def recall(ctx: Context[Mailing], done: FanOut) -> None:
        told.append(done)

    @saga.step(repeat=Repeat.SAFE, retry=ONCE)
    async def close(ctx: Context[Mailing]) -> None:
        raise Refused("NO")

    saga.flow(node, close)
    bad = 1 if fails == "later" else 3
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=4, bad=bad))
        await kit.until(run, RunState.COMPENSATED)
        assert told == [FanOut(total=4, succeeded=4 - bad, failed=bad)]


@pytest.mark.parametrize(("odd", "code"), [("other", "MP393"), ("wrong", "MP392")])
async def test_a_wrong_list_is_for_a_person_and_begins_nothing(odd: str, code: str) -> None:
    saga, _ = mailing("kit-wrong", on_failure=Then.COMPENSATE)
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=2, odd=odd))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        assert (await parent(kit, run))["code"] == code
        assert await items(kit, run) == []


async def test_the_same_item_twice_is_one() -> None:
    saga, node = mailing("kit-same")
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=2, odd="same"))
        await kit.until(run, RunState.SUCCEEDED)
        assert (await kit.result(run, node)).total == 2


async def test_a_list_that_cannot_be_read_is_read_again() -> None:
    saga, node = mailing("kit-reread")
    async with opened(saga, letter) as (kit, _, _):
        kit.lose_reply(node, times=2)
        run = await kit.start(saga, Mailing(id="m", letters=2))
        await kit.until(run, RunState.SUCCEEDED)
        assert len(await items(kit, run)) == 2


async def test_a_list_that_is_refused_fails_the_node() -> None:
    saga, _ = mailing("kit-refused")
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=2, odd="raises"))
        await kit.until(run, RunState.FAILED)
        assert (await parent(kit, run))["cause"] == "NO_LIST"
        assert await items(kit, run) == []


async def test_in_branches_and_rounds() -> None:
    saga = Saga("kit-nested", version=1, input=Mailing, key=lambda given: given.id)
    send = saga.each("send", letter, items=letters, no_undo="none needed")
    lost = saga.each("lost", slow, items=letters, no_undo="none needed")
    pause = saga.timer("pause", timedelta(minutes=30))
    saga.flow(optional(send), at_least(1, lost, pause))
    async with opened(saga, letter, slow) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=3, bad=1))
        await kit.advance(timedelta(minutes=31))
        await kit.until(run, RunState.SUCCEEDED)
        states = {row["state"] for row in await items(kit, run) if row["step"] == "lost"}
        assert states == {"CANCELLED"}, "a branch that is not wanted any more stops its items"


async def test_each_round_has_a_list_of_its_own() -> None:
    saga = Saga("kit-rounds", version=1, input=Mailing, key=lambda given: given.id)

    async def of_round(ctx: Context[Mailing]) -> AsyncIterator[Letter]:
        yield Letter(name=ctx.idempotency_key.rpartition("#")[2])

    send = saga.each("send", letter, items=of_round, no_undo="none needed")
    rounds = 0

    def enough(v: Any) -> bool:
        nonlocal rounds
        rounds += 1
        return rounds == 2

    saga.flow(loop(send, until=enough, at_most=3))
    async with opened(saga, letter) as (kit, _, _):
        run = await kit.start(saga, Mailing(id="m", letters=3))
        await kit.until(run, RunState.SUCCEEDED)
        assert [(row["iteration"], row["key"]) for row in await items(kit, run)] == [("1", "1"), ("2", "2")]
