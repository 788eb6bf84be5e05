"""A step is run once per claim: not again for a repeated message, a lost lease, a cancelled task or a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost import Absent, Context, Found, Probe, Repeat, Retry, Saga, Transaction
from milepost.consumers.changes import Change
from milepost.consumers.clients import Clients, Crew
from milepost.consumers.engine import Engine
from milepost.schemas.ids import SystemClock
from milepost.streams.lifecycle import Stop, run_roles
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.engine import Rig, rig
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int


def _saga() -> Saga[Order]:
    return Saga("claims", version=1, input=Order, key=lambda order: order.id)


def never(called: list[int]) -> Saga[Order]:
    """One step that must not be called twice."""
    made = _saga()

    @made.step(repeat=Repeat.NEVER)
    async def charge(ctx: Context[Order]) -> Number:
        called.append(ctx.attempt)
        return Number(value=2)

    made.flow(charge)
    return made


async def is_over(it: Rig, run: UUID, *states: str) -> bool:
    return (await it.states(run))[""] in states


async def test_an_inline_claim_is_made_under_the_lease_of_the_step_before_or_not_at_all(
    database_url: str,
) -> None:
    """The database was away longer than the lease; the process has a new lease when the outcome gets stored."""
    begun, gate, charged = asyncio.Event(), asyncio.Event(), list[str]()
    made = _saga()

    @made.step(repeat=Repeat.SAFE)
    async def first(ctx: Context[Order]) -> Number:
        begun.set()
        with suppress(asyncio.CancelledError):
            await gate.wait()
        return Number(value=1)

    @made.step(repeat=Repeat.ASK_FIRST)
    async def charge(ctx: Context[Order]) -> Number:
        charged.append(ctx.idempotency_key)
        return Number(value=2)

    @charge.probe(settle=timedelta(seconds=5))
    async def ask(ctx: Context[Order]) -> Probe[Number]:
        return Found(Number(value=2)) if charged else Absent()

    made.flow(first, charge)
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        run = await it.start(made, Order(id="o"))
        await hand.take(run.id, "claims", "first")
        await begun.wait()
        old = hand.lease.id
        hand.lease._ends = float("-inf")
        await it.value("UPDATE milepost.worker SET expires_at = clock_timestamp() - interval '20 s'")
        await hand.lease._keep(5)
        assert hand.lease.id != old
        assert hand.lease.held()
        gate.set()
        await until(hand.idle, what="the first step's end")
        states = await it.states(run.id)
        assert states["first"] == "SUCCEEDED", "what is known is stored"
        assert states["charge"] == "PENDING", "nobody may run it under a lease that has ended"
        assert charged == []


async def test_a_repeated_message_never_runs_a_step_whose_outcome_could_not_be_stored(
    database_url: str,
) -> None:
    called: list[int] = []
    made = never(called)
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        run = await it.start(made, Order(id="o"))
        await it.database.pool.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.state <> 'RUNNING' THEN RAISE 'no' USING ERRCODE = '23514'; END IF; RETURN NEW; END $$"
        )
        trigger = (
            "CREATE TRIGGER refuse BEFORE UPDATE ON milepost.step FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        await it.database.pool.execute(trigger)
        assert await hand.take(run.id, "claims", "charge")
        await until(hand.idle, what="the end of the task")
        await it.database.pool.execute("DROP TRIGGER refuse ON milepost.step")
        assert not await hand.take(run.id, "claims", "charge")
        await until(hand.idle)
        assert called == [1]
        assert (await it.states(run.id))["charge"] == "RUNNING", "left to its hard timeout"


async def test_an_outcome_is_kept_while_the_disk_is_full(database_url: str) -> None:
    called: list[int] = []
    made = never(called)
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        run = await it.start(made, Order(id="o"))
        await it.database.pool.execute(
            "CREATE TABLE disk (left_over integer); INSERT INTO disk VALUES (0); "
            "CREATE FUNCTION full_() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.state = 'SUCCEEDED' AND (SELECT left_over FROM disk) = 0 THEN RAISE 'disk full' "
            "USING ERRCODE = '53100'; END IF; RETURN NEW; END $$; "
            "CREATE TRIGGER full_ BEFORE UPDATE ON milepost.step FOR EACH ROW EXECUTE FUNCTION full_()"
        )
        await hand.take(run.id, "claims", "charge")
        await until(lambda: called)
        assert (await it.states(run.id))["charge"] == "RUNNING"
        await it.database.pool.execute("UPDATE disk SET left_over = 1")
        await until(lambda: is_over(it, run.id, "SUCCEEDED"), what="the stored outcome")
        assert called == [1]


@pytest.fixture
def slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a change that claimed something takes a while to arrive."""
    real = Engine.change

    async def change(self: Engine, *arguments: Any, **options: Any) -> Change | None:
        got = await real(self, *arguments, **options)
        if got is not None and got.decision.claimed is not None:
            for _ in range(20):
                await asyncio.sleep(0)
            await self.pool.fetchval("SELECT pg_sleep(0.1)")
        return got

    monkeypatch.setattr(Engine, "change", change)


async def test_a_repeated_announcement_does_not_run_an_inline_claim_twice(
    database_url: str, slow_answers: None
) -> None:
    made = _saga()
    called: list[int] = []

    @made.step(repeat=Repeat.ASK_FIRST, retry=Retry(attempts=3))
    async def charge(ctx: Context[Order]) -> Number:
        if ctx.attempt == 1:
            raise RuntimeError("lost reply")
        called.append(ctx.attempt)
        return Number(value=2)

    @charge.probe(settle=timedelta(0))
    async def ask(ctx: Context[Order]) -> Probe[Number]:
        return Absent()

    made.flow(charge)
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        run = await it.start(made, Order(id="o"))
        await hand.take(run.id, "claims", "charge")
        await until(hand.idle)
        while not await is_over(it, run.id, "SUCCEEDED"):
            await hand.take(run.id, "claims", "charge")
        await until(hand.idle)
        assert called == [2]


async def test_a_claim_whose_asker_is_cancelled_is_seen_through(
    database_url: str, slow_answers: None
) -> None:
    """A partition is taken away while a claim of it is being committed."""
    called: list[int] = []
    made = never(called)
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        run = await it.start(made, Order(id="o"))
        asking = asyncio.create_task(hand.take(run.id, "claims", "charge"))

        async def claimed() -> bool:
            return (await it.states(run.id))["charge"] == "RUNNING"

        await until(claimed, every=0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: is_over(it, run.id, "SUCCEEDED"), what="the claimed step's end")
        assert called == [1]


async def test_a_lease_lost_before_the_first_turn_leaks_no_slot_and_hands_back(database_url: str) -> None:
    called: list[int] = []
    made = never(called)
    async with rig(database_url, made) as it, worker_on(database_url, it.service, slots=1) as hand:
        run = await it.start(made, Order(id="o"))
        real = hand.engine.change

        async def change(run_id: UUID, fact: Any, **options: Any) -> Change | None:
            got = await real(run_id, fact, **options)
            if got is not None and got.decision.claimed is not None:
                hand.lease._lose()
            return got

        object.__setattr__(hand.engine, "change", change)
        assert await hand.take(run.id, "claims", "charge")
        await until(hand.idle, what="the task's end")
        object.__delattr__(hand.engine, "change")
        assert called == [], "nothing is called without a lease"
        assert (await it.states(run.id))["charge"] == "PENDING"
        await hand.lease.take()
        assert await hand.take(run.id, "claims", "charge"), "the only slot is free again"
        await until(lambda: is_over(it, run.id, "SUCCEEDED"))
        assert called == [1]


async def test_the_lease_is_kept_until_a_stopping_worker_has_stored_its_last_outcome(
    database_url: str,
) -> None:
    begun = asyncio.Event()
    made = _saga()

    @made.step(repeat=Repeat.NEVER)
    async def charge(ctx: Context[Order]) -> Number:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # It ends its call cleanly, a little after the grace time.
            await it.value("SELECT pg_sleep(1.5)")
        return Number(value=2)

    made.flow(charge)
    async with rig(database_url, made) as it:
        stop = Stop(SystemClock(), timedelta(seconds=1))
        lease = timedelta(seconds=1.5)
        async with worker_on(database_url, it.service, lease=lease, stopping=lambda: stop.asked) as hand:
            crew = Crew(Clients({}), {"default": hand.worker}, hand.lease)
            roles = asyncio.create_task(run_roles([hand.lease, crew], stop))
            run = await it.start(made, Order(id="o"))
            await hand.take(run.id, "claims", "charge")
            await begun.wait()
            stop.ask()
            while not roles.done():
                assert await it.waker.sweep() == 0, "the lease ended before the step did"
                await asyncio.wait({roles}, timeout=0.1)
            await roles
        assert await is_over(it, run.id, "SUCCEEDED")
        assert await it.value("SELECT expires_at <= clock_timestamp() FROM milepost.worker")


async def test_many_transactional_steps_keep_neither_lease_nor_attempts_waiting(database_url: str) -> None:
    made = _saga()

    @made.tx_step()
    async def book(ctx: Context[Order], tx: Transaction) -> None:
        await tx.connection.execute("SELECT pg_sleep(0.3)")

    made.flow(book)
    lease = timedelta(seconds=3)
    async with rig(database_url, made, lease=lease) as it:
        async with worker_on(database_url, it.service, lease=lease, slots=60, room=4) as hand:
            lost: list[bool] = []
            hand.lease.on_lost(lambda: lost.append(True))
            stop = Stop(SystemClock(), timedelta(seconds=1))
            keeping = asyncio.create_task(hand.lease.run(stop))
            runs = [await it.start(made, Order(id=f"o-{n}")) for n in range(40)]

            async def settled() -> bool:
                for run in runs:
                    if (await it.states(run.id))["book"] == "PENDING":
                        await hand.take(run.id, "claims", "book")
                done = "SELECT count(*) FROM milepost.run WHERE state = 'SUCCEEDED'"
                return bool(await it.value(done) == len(runs))

            await until(settled, within=40, what="all of them")
            hand.lease.finished()
            await keeping
            assert lost == []
            assert await it.value("SELECT max(attempt) FROM milepost.step") == 1


@asynccontextmanager
async def hanging() -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


async def test_a_client_that_hangs_while_it_is_opened_does_not_keep_the_process(database_url: str) -> None:
    made = never([])
    async with rig(database_url, made) as it, worker_on(database_url, it.service) as hand:
        stop = Stop(SystemClock(), timedelta(seconds=1))
        crew = Crew(Clients({dict: hanging}), {"default": hand.worker}, hand.lease)
        running = asyncio.create_task(run_roles([crew], stop))
        await asyncio.sleep(0)
        assert not crew.health().ok
        stop.ask()
        async with asyncio.timeout(10):
            await running


@pytest.mark.parametrize("act", ["rollback", "commit", "close"])
async def test_a_step_that_ends_its_own_transaction_is_no_success(database_url: str, act: str) -> None:
    made = _saga()

    @made.tx_step(retry=Retry(attempts=1))
    async def book(ctx: Context[Order], tx: Transaction) -> None:
        await tx.session.execute(text("INSERT INTO ledger VALUES ('booked')"))
        await getattr(tx.session, act)()

    made.flow(book)
    async with rig(database_url, made) as it:
        await it.value("CREATE TABLE ledger (what text)")
        engine = create_async_engine(it.service.settings.sqlalchemy_url)
        try:
            await failing_step(it, engine, made, database_url)
        finally:
            await engine.dispose()
        assert await it.value("SELECT code FROM milepost.step") == "MP332"


async def failing_step(it: Rig, engine: Any, made: Saga[Order], url: str) -> None:
    """Run the one step of a saga on an engine, to the run's end."""
    async with worker_on(url, it.service) as hand:
        hand.worker._database._engine = engine
        run = await it.start(made, Order(id="o"))
        await one(hand, it, run.id)


async def one(hand: Hand, it: Rig, run: UUID) -> None:
    await hand.take(run, "claims", "book")
    await until(lambda: is_over(it, run, "FAILED"), what="the run's end")
