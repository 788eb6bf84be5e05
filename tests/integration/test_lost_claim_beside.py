"""The answer to the claim of one branch is lost while another branch of the same run is at work in the same process."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
from milepost import Context, Repeat, Saga, all_of
from milepost.schemas.ids import SystemClock
from pydantic import BaseModel

from tests.support.engine import Rig, rig
from tests.support.proxy import proxied
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on


class Order(BaseModel):
    id: str


async def take(hand: Hand, run: UUID, step: str) -> bool:
    """Announce a step once; False when the database did not answer."""
    try:
        await hand.take(run, "beside", step)
    except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
        return False
    return True


class Branches:
    """Two steps side by side, of which none may be called twice; each call waits for its go."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = {"left": asyncio.Event(), "right": asyncio.Event()}
        self.breaks = ""

    def saga(self) -> Saga[Order]:
        saga = Saga("beside", version=1, input=Order, key=lambda order: order.id)

        async def called(name: str) -> None:
            self.calls.append(name)
            await self.go[name].wait()
            if name == self.breaks:
                raise RuntimeError("who knows what became of it")

        @saga.step(repeat=Repeat.NEVER)
        async def left(ctx: Context[Order]) -> None:
            await called("left")

        @saga.step(repeat=Repeat.NEVER)
        async def right(ctx: Context[Order]) -> None:
            await called("right")

        saga.flow(all_of(left, right))
        return saga


async def reaches(it: Rig, run: UUID, step: str, state: str) -> None:
    """Wait for a state of a step, or of the run ('')."""

    async def there() -> bool:
        return (await it.states(run)).get(step) == state

    await until(there, within=10, what=f"{step or 'run'} {state}")


async def test_a_claim_is_taken_up_again_while_the_other_branch_still_works(database_url: str) -> None:
    world = Branches()
    saga = world.saga()
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            assert await take(hand, run.id, "left")
            proxy.lose(b"step.started")
            assert not await take(hand, run.id, "right")
            world.go["right"].set()
            assert await take(hand, run.id, "right")
            await reaches(it, run.id, "right", "SUCCEEDED")
            assert (await it.states(run.id))["left"] == "RUNNING"
            world.go["left"].set()
            await reaches(it, run.id, "", "SUCCEEDED")
        assert world.calls == ["left", "right"]


async def test_two_messages_take_up_a_lost_claim_once(database_url: str) -> None:
    world = Branches()
    saga = world.saga()
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            proxy.lose(b"step.started")
            assert not await take(hand, run.id, "right")
            taken = await asyncio.gather(*(hand.take(run.id, "beside", "right") for _ in range(3)))
            assert sorted(taken) == [False, False, True]
            world.go["right"].set()
            await reaches(it, run.id, "right", "SUCCEEDED")
            assert world.calls == ["right"]


async def test_a_step_whose_outcome_could_not_be_stored_is_not_run_by_the_other_branch(
    database_url: str,
) -> None:
    """Two faults in a row: left's outcome cannot be stored, then the answer to right's is lost."""
    world = Branches()
    world.breaks = "left"
    world.go["left"].set()
    saga = world.saga()
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        await it.value(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.name = 'left' AND NEW.state <> 'RUNNING' THEN RAISE 'no' USING ERRCODE = '23514'; END IF; "
            "RETURN NEW; END $$"
        )
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            await it.value(
                "CREATE TRIGGER refuse BEFORE UPDATE ON milepost.step FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
            assert await take(hand, run.id, "left")
            await until(hand.idle, what="the end of left's task")
            assert await take(hand, run.id, "right")
            proxy.lose(b"step.completed")
            world.go["right"].set()
            await until(hand.idle, what="the end of right's task")
            assert proxy.lost == 1, "the fault did not happen"
            states = await it.states(run.id)
            assert (states["left"], states["right"]) == ("RUNNING", "SUCCEEDED"), (
                "left is left to its hard timeout"
            )
        assert world.calls == ["left", "right"]


class Ahead(SystemClock):
    """Elapsed time, and some more."""

    more = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.more


async def test_a_claim_that_is_answered_late_is_made_anew(database_url: str) -> None:
    """Begun under the old one, the step would go on after its hard timeout, when somebody else has it."""
    world = Branches()
    world.go["right"].set()
    saga = world.saga()
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        it.service.clock = clock = Ahead()
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            pass_on = proxy.delay(b"step.started")
            claiming = asyncio.create_task(take(hand, run.id, "right"))
            await reaches(it, run.id, "right", "RUNNING")
            clock.more = it.service.settings.lease.total_seconds() / 2
            pass_on.set()
            assert await claiming
            await reaches(it, run.id, "right", "SUCCEEDED")
            events = ["step.started", "step.handed_back", "step.started", "step.completed"]
            assert (await it.history(run.id))[1:] == events
            assert await it.value("SELECT attempt FROM milepost.step WHERE name = 'right'") == 1
        assert world.calls == ["right"]


async def test_what_the_other_branch_did_is_stored(database_url: str) -> None:
    calls: list[str] = []
    go = asyncio.Event()
    saga = Saga("beside", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.NEVER)
    async def left(ctx: Context[Order]) -> None:
        calls.append("left")
        await go.wait()

    @saga.step(repeat=Repeat.NEVER)
    async def right(ctx: Context[Order]) -> None:
        calls.append("right")

    saga.flow(all_of(left, right))
    async with proxied(database_url) as (proxy, through), rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        async with worker_on(through, it.service) as hand:
            assert await take(hand, run.id, "left")
            proxy.lose(b"step.started")
            assert not await take(hand, run.id, "right")
            assert (await it.states(run.id))["right"] == "RUNNING"
            go.set()

            async def stored() -> bool:
                return (await it.states(run.id))["left"] == "SUCCEEDED"

            await until(stored, within=10, what="left's result")
            assert await take(hand, run.id, "right")

            async def ended() -> bool:
                return (await it.states(run.id))[""] == "SUCCEEDED"

            await until(ended, within=10, what="the run's end")
        assert sorted(calls) == ["left", "right"]
        assert "step.late_result" not in await it.history(run.id)
