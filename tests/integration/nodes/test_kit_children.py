"""Children in the kit: they run by themselves, and their parent goes on when they have ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost import (
    ChildRun,
    Context,
    DefinitionError,
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
)
from milepost.recovery.requests import Request, ask
from milepost.streams.drivers import run_in
from milepost.testing import Kit
from pydantic import BaseModel

from tests.support.kitshop import PlaceOrder, opened

ONCE = Retry(attempts=1)


class Parcel(BaseModel):
    """Input of a child."""

    name: str
    weight: int = 1


parcel = Saga("kit-parcel", version=1, input=Parcel, key=lambda given: given.name)
UNDONE: list[str] = []


@parcel.step(repeat=Repeat.SAFE, retry=ONCE)
async def pack(ctx: Context[Parcel]) -> None: ...


@pack.undo
async def unpack(ctx: Context[Parcel], done: None) -> None:
    UNDONE.append(ctx.run.key)


pause = parcel.timer("pause", timedelta(hours=1))


@parcel.step(repeat=Repeat.SAFE, retry=ONCE)
async def hand_over(ctx: Context[Parcel]) -> None:
    if ctx.input.name.startswith("bad"):
        raise Refused("NO_TRUCK")


parcel.flow(pack, pause, hand_over)

order = Saga("kit-parent", version=1, input=PlaceOrder, key=lambda given: given.order_id)
sent = order.child("sent", parcel, input=lambda v: Parcel(name=f"{v.input.order_id}-1"))
TAKEN_BACK: list[str] = []


@sent.undo
async def take_back(ctx: Context[PlaceOrder], done: ChildRun) -> None:
    TAKEN_BACK.append(done.key)


@order.step(repeat=Repeat.SAFE, retry=ONCE)
async def close(ctx: Context[PlaceOrder]) -> None:
    if ctx.input.order_id == "refused":
        raise Refused("NO")


order.flow(sent, close)

HOURS = timedelta(hours=2)


async def child_of(kit: Kit, run: RunRef) -> Any:
    """Return the link of a run's only child."""
    pool = kit._opened.database.pool
    return await pool.fetchrow(
        "SELECT k.*, r.state AS now, r.correlation_id, r.cause FROM milepost.child_run AS k "
        "LEFT JOIN milepost.run AS r ON r.id = k.child_id WHERE k.run_id = $1 ORDER BY k.attempt DESC LIMIT 1",
        run.id,
    )


async def test_the_parent_goes_on_when_the_child_has_ended() -> None:
    async with opened(order, parcel) as (kit, _, _):
        run = await kit.start(order, PlaceOrder(order_id="o-1"))
        await kit.until_step(run, sent, StepState.WAITING)
        await kit.advance(timedelta(minutes=30))
        link = await child_of(kit, run)
        assert (link["key"], link["now"], link["joined"]) == ("o-1-1", "WAITING", False)
        assert link["correlation_id"] == str(run.id)
        await kit.advance(HOURS)
        await kit.until(run, RunState.SUCCEEDED)
        child = await kit.result(run, sent)
        assert (child.id, child.key, child.state) == (link["child_id"], "o-1-1", RunState.SUCCEEDED)


async def test_a_child_that_ends_badly_fails_the_node() -> None:
    async with opened(order, parcel) as (kit, _, _):
        run = await kit.start(order, PlaceOrder(order_id="bad"))
        await kit.advance(HOURS)
        await kit.until(run, RunState.FAILED)
        assert (await child_of(kit, run))["now"] == "COMPENSATED"
        pool = kit._opened.database.pool
        assert (
            await pool.fetchval("SELECT cause FROM milepost.run WHERE id = $1", run.id) == "CHILD_COMPENSATED"
        )


async def test_the_undo_of_a_child_gets_what_it_was() -> None:
    async with opened(order, parcel) as (kit, _, _):
        run = await kit.start(order, PlaceOrder(order_id="refused"))
        await kit.advance(HOURS)
        await kit.until(run, RunState.COMPENSATED)
        assert TAKEN_BACK == ["refused-1"]


async def test_a_run_that_is_there_is_joined_under_way_or_over() -> None:
    async with opened(order, parcel) as (kit, _, _):
        child = await kit.start(parcel, Parcel(name="o-2-1"))
        await kit.until_step(child, pause, StepState.WAITING)
        run = await kit.start(order, PlaceOrder(order_id="o-2"))
        await kit.advance(timedelta(minutes=1))
        assert (await child_of(kit, run))["joined"]
        await kit.advance(HOURS)
        await kit.until(run, RunState.SUCCEEDED)
        over = await kit.start(parcel, Parcel(name="o-3-1"))
        await kit.advance(HOURS)
        await kit.until(over, RunState.SUCCEEDED)
        late = await kit.start(order, PlaceOrder(order_id="o-3"))
        await kit.until(late, RunState.SUCCEEDED)
        assert (await kit.result(late, sent)).id == over.id


async def test_another_input_under_the_key_is_for_a_person() -> None:
    async with opened(order, parcel) as (kit, _, _):
        await kit.start(parcel, Parcel(name="o-4-1", weight=2))
        run = await kit.start(order, PlaceOrder(order_id="o-4"))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        pool = kit._opened.database.pool
        assert await pool.fetchval("SELECT code FROM milepost.run WHERE id = $1", run.id) == "MP302"


@pytest.mark.parametrize("undo", [True, False])
async def test_cancelling_the_parent_cancels_its_child_and_waits_for_it(undo: bool) -> None:
    UNDONE.clear()
    async with opened(order, parcel) as (kit, _, service):
        run = await kit.start(order, PlaceOrder(order_id="o-5"))
        await kit.advance(timedelta(minutes=1))
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=undo, by="ann", reason="a mistake")
        await kit.until(run, RunState.CANCELLED)
        assert (await child_of(kit, run))["now"] == ("COMPENSATED" if undo else "CANCELLED")
        assert (["o-5-1"] if undo else []) == UNDONE
        audit = await kit._opened.database.pool.fetch(
            "SELECT a.actor, a.before ->> 'run' AS before, a.evidence ->> 'undo' AS undo,"
            " a.evidence ->> 'parent' AS parent FROM milepost.audit AS a JOIN milepost.run AS r ON r.id = a.run_id"
            " WHERE r.saga = 'kit-parcel' AND a.act = 'run.cancel'"
        )
        assert [tuple(row) for row in audit] == [
            (f"run {run}", "WAITING", "true" if undo else "false", str(run.id))
        ]


async def test_somebody_elses_run_is_left_alone() -> None:
    async with opened(order, parcel) as (kit, _, service):
        child = await kit.start(parcel, Parcel(name="o-6-1"))
        run = await kit.start(order, PlaceOrder(order_id="o-6"))
        await kit.advance(timedelta(minutes=1))
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=True, by="ann", reason="a mistake")
        await kit.until(run, RunState.CANCELLED)
        await kit.advance(HOURS)
        await kit.until(child, RunState.SUCCEEDED)


async def test_a_branch_that_is_given_up_at_once_begins_no_child() -> None:
    saga = Saga("kit-either", version=1, input=PlaceOrder, key=lambda given: given.order_id)
    one = saga.child("one", parcel, input=lambda v: Parcel(name="slow"), no_undo="none needed")

    @saga.step(repeat=Repeat.SAFE, no_undo="none needed")
    async def quick(ctx: Context[PlaceOrder]) -> None: ...

    saga.flow(at_least(1, one, quick))
    async with opened(saga, parcel) as (kit, _, _):
        run = await kit.start(saga, PlaceOrder(order_id="o-7"))
        await kit.advance(HOURS)
        await kit.until(run, RunState.SUCCEEDED)
        assert (await child_of(kit, run))["now"] is None, "it was never started"


async def test_a_branch_that_is_not_wanted_any_more_stops_its_child() -> None:
    saga = Saga("kit-late", version=1, input=PlaceOrder, key=lambda given: given.order_id)
    one = saga.child("one", parcel, input=lambda v: Parcel(name="slow"), no_undo="none needed")
    saga.flow(at_least(1, one, saga.timer("pause", timedelta(minutes=30))))
    async with opened(saga, parcel) as (kit, _, _):
        run = await kit.start(saga, PlaceOrder(order_id="o-8"))
        await kit.advance(timedelta(minutes=29))
        assert (await child_of(kit, run))["now"] == "WAITING"
        await kit.advance(timedelta(minutes=1))
        await kit.until(run, RunState.SUCCEEDED)
        child = await child_of(kit, run)
        assert (child["now"], child["cause"]) == ("COMPENSATED", "CANCELLED"), "stopped, and undone"


async def test_a_retry_starts_a_failed_child_under_a_key_of_its_own() -> None:
    saga = Saga("kit-again", version=1, input=PlaceOrder, key=lambda given: given.order_id)
    node = saga.child(
        "node", parcel, input=lambda v: Parcel(name="bad-one"), on_failure=Then.PERSON, no_undo="none needed"
    )
    saga.flow(node)
    async with opened(saga, parcel) as (kit, _, service):
        run = await kit.start(saga, PlaceOrder(order_id="o-8"))
        await kit.advance(HOURS)
        await kit.until(run, RunState.MANUAL_REQUIRED)
        async with service.transaction() as tx:
            wanted = Request(run=run.id, what="retry", by="ann", reason="mended", step="node")
            await ask(await run_in(tx, "test"), wanted, service.ids, "test")
        await kit.advance(timedelta(minutes=1))
        assert (await child_of(kit, run))["key"] == "bad-one~2"


def test_the_saga_of_a_child_has_to_be_of_the_service() -> None:
    with pytest.raises(DefinitionError, match="MP141"):
        Milepost("shop", sagas=[order])
