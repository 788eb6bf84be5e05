"""Runs in a real database: started once, changed by one at a time, found again when a signal is lost."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from uuid import UUID

import pytest
from milepost import Context, Event, Repeat, Retry, RunRef, Saga, StateError, Then, UsageError
from milepost.consumers.changes import Change
from milepost.sagas.facts import Claim, Succeeded, Wake
from milepost.schemas.messages import ResumeMessage, TimerMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig, worker_id


class Order(BaseModel):
    id: str
    amount: int = 1


class Receipt(BaseModel):
    number: int


class Arrived(Event, type="rig.arrived", topic="rig-arrivals", key="id", correlate="id"):
    id: str


def saga() -> Saga[Order]:
    """Two steps and a wait."""
    made = Saga("order", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE, retry=Retry(attempts=2))
    async def first(ctx: Context[Order]) -> Receipt:
        return Receipt(number=1)

    @first.undo
    async def undo_first(ctx: Context[Order], done: Receipt) -> None:
        return None

    wait = made.wait(
        "arrived", Arrived, match=lambda v: v.input.id, timeout=timedelta(hours=1), on_timeout=Then.COMPENSATE
    )

    @made.step(repeat=Repeat.SAFE, no_undo="the last")
    async def last(ctx: Context[Order]) -> None:
        return None

    made.flow(first, wait, last)
    return made


async def test_starting_again_returns_the_run_and_another_input_is_refused(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        one = await it.start(order, Order(id="o-1"))
        again = await it.start(order, Order(id="o-1"))
        assert again == one
        with pytest.raises(
            StateError, match=r"MP302 .*order/o-1 already runs with a different input \(changed: amount\)"
        ):
            await it.start(order, Order(id="o-1", amount=2))
        assert await it.value("SELECT count(*) FROM milepost.run") == 1
        assert len(await it.outgoing("milepost.work")) == 1


async def test_a_key_that_no_index_can_hold_is_refused_in_words(database_url: str) -> None:
    order, drawn = saga(), random.Random(7)

    def wide(length: int) -> str:
        return "".join(chr(drawn.randrange(0x20000, 0x2A000)) for _ in range(length))

    async with rig(database_url, order) as it, it.database.pool.acquire() as connection:
        for tenant, key, fits in ((wide(100), wide(512), True), (wide(200), wide(512), False)):
            async with connection.transaction():
                if fits:
                    await it.service.start(connection, order, Order(id=key), tenant=tenant)
                    continue
                with pytest.raises(UsageError, match=r"MP343 order v1: key= .* more than 2500 bytes"):
                    await it.service.start(connection, order, Order(id=key), tenant=tenant)
        assert await it.value("SELECT count(*) FROM milepost.run") == 1


async def test_fifty_starts_at_once_make_one_run(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order, max_size=20) as it:
        runs = await asyncio.gather(*(it.start(order, Order(id="o-1")) for _ in range(50)))
        assert len({run.id for run in runs}) == 1
        assert await it.value("SELECT count(*) FROM milepost.run") == 1
        assert len(await it.outgoing("milepost.work")) == 1


async def test_a_rolled_back_start_leaves_nothing(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        async with it.database.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await it.service.start(connection, order, Order(id="o-1"))
            await transaction.rollback()
        for table in ("run", "step", "run_key", "outbox", "history"):
            assert await it.value(f"SELECT count(*) FROM milepost.{table}") == 0


async def claimed(it: Rig, run: UUID, step: str) -> Change:
    change = await it.engine.change(run, Claim(step, worker_id()))
    assert change is not None
    return change


async def test_of_twenty_claims_at_once_one_wins(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order, max_size=20) as it:
        run = await it.start(order, Order(id="o-1"))
        changes = await asyncio.gather(*(claimed(it, run.id, "first") for _ in range(20)))
        assert sum(change.decision.claimed is not None for change in changes) == 1
        assert await it.value("SELECT attempt FROM milepost.step WHERE name = 'first'") == 1
        assert await it.value("SELECT fence FROM milepost.step WHERE name = 'first'") == 1


async def test_fifty_messages_for_one_run_through_three_orchestrators_equal_one(database_url: str) -> None:
    order = saga()
    async with (
        rig(database_url, order, max_size=20) as it,
        rig(database_url, order) as b,
        rig(database_url, order) as c,
    ):
        run = await it.start(order, Order(id="o-1"))
        change = await claimed(it, run.id, "first")
        step = change.decision.claimed
        assert step is not None
        finish = Succeeded("first", step.fence, {"number": 7})
        sweep = Wake("first", step.generation + 99)
        facts: list[Succeeded | Wake] = [finish, sweep] * 25
        await asyncio.gather(
            *(who.engine.change(run.id, f) for who, f in zip([it, b, c] * 17, facts, strict=False))
        )
        assert await it.states(run.id) == {"": "WAITING", "first": "SUCCEEDED", "arrived": "WAITING"}
        history = await it.history(run.id)
        assert history.count("step.completed") == 1
        numbers = await it.database.pool.fetch(
            "SELECT n FROM milepost.history WHERE run_id = $1 ORDER BY n", run.id
        )
        assert [row["n"] for row in numbers] == list(range(1, len(numbers) + 1))
        assert await it.value("SELECT history_n FROM milepost.run") == len(numbers)
        assert await it.value("SELECT count(*) FROM milepost.wait") == 1


async def test_a_lost_timer_message_is_written_again_and_acted_on_once(database_url: str) -> None:
    """Interleaving 9: firing pushes wake_at, it does not delete the timer."""
    order = saga()
    async with rig(database_url, order) as it:
        run = await waiting_run(it, order)
        await it.clock("2 hours")
        assert await it.waker.tick() == 1
        lost = await it.outgoing("milepost.timer")
        assert await it.waker.tick() == 0, "pushed forward, so it does not fire at once again"
        assert await it.value("SELECT wake_at IS NOT NULL FROM milepost.step WHERE name = 'arrived'")
        await it.clock("3 hours")
        assert await it.waker.tick() == 1
        again = (await it.outgoing("milepost.timer"))[len(lost) :]
        timers = [TimerMessage.model_validate(body) for body in again * 3]
        for timer in timers:
            await it.orchestrator.wake(timer)
        assert (await it.states(run.id))["arrived"] == "FAILED"
        undos = await it.database.pool.fetch("SELECT name FROM milepost.step WHERE kind = 'UNDO'")
        assert [row["name"] for row in undos] == ["undo_first"]
        assert (await it.history(run.id)).count("timer.stale") == 2


async def waiting_run(it: Rig, order: Saga[Order], key: str = "o-1") -> RunRef:
    """Start a run and bring it to its wait."""
    run = await it.start(order, Order(id=key))
    change = await claimed(it, run.id, "first")
    assert change.decision.claimed is not None
    await it.engine.change(run.id, Succeeded("first", change.decision.claimed.fence, {"number": 1}))
    assert (await it.states(run.id))["arrived"] == "WAITING"
    return run


async def signal(it: Rig, key: str) -> list[ResumeMessage]:
    """Store a signal as the intake does; returns the resumes that it would write."""
    from milepost.inbox.signals import NewSignal, store_signals

    new = NewSignal(
        id=worker_id(),
        tenant="",
        source="carrier",
        event_id=str(worker_id()),
        type="rig.arrived",
        key=key,
        payload=f'{{"id": "{key}"}}',
    )
    async with it.database.pool.acquire() as connection, connection.transaction():
        stored = await store_signals(connection, [new])
    return [
        ResumeMessage(run=m.run_id, step=m.step, iteration=m.iteration, generation=m.generation)
        for m in stored.matched
    ]


@pytest.mark.parametrize("first", ["signal", "timer"])
async def test_timer_and_event_due_at_one_instant_have_one_winner(database_url: str, first: str) -> None:
    """Scenario 32: the loser is a recorded no-op, and a timer of the old run never touches another."""
    order = saga()
    async with rig(database_url, order) as it:
        run = await waiting_run(it, order)
        await it.clock("2 hours")
        await it.waker.tick()
        (timer,) = [TimerMessage.model_validate(body) for body in await it.outgoing("milepost.timer")]
        if first == "signal":
            (resume,) = await signal(it, "o-1")
            # The timer is handled before the resume arrives: the match is already there, so it must not time out.
            await it.orchestrator.wake(timer)
            await it.orchestrator.resume(resume)
        else:
            await it.orchestrator.wake(timer)
            assert await signal(it, "o-1") == [], "a wait that has timed out takes no signal"
        states = await it.states(run.id)
        if first == "signal":
            assert states == {"": "RUNNING", "first": "SUCCEEDED", "arrived": "SUCCEEDED", "last": "PENDING"}
        else:
            assert states["arrived"] == "FAILED"
            assert states["undo_first"] == "COMPENSATION_PENDING"
        other = await waiting_run(it, order, "o-2")
        before = await it.states(other.id)
        await it.orchestrator.wake(timer)
        assert await it.states(other.id) == before
        assert await it.states(run.id) == states


async def test_timers_and_events_racing_leave_each_run_with_one_outcome(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order, max_size=20) as it:
        runs = [await waiting_run(it, order, f"o-{n}") for n in range(20)]
        await it.clock("2 hours")
        await it.waker.tick()
        timers = [TimerMessage.model_validate(body) for body in await it.outgoing("milepost.timer")]
        assert len(timers) == 20

        async def event(key: str) -> None:
            for resume in await signal(it, key):
                await it.orchestrator.resume(resume)

        both = [it.orchestrator.wake(timer) for timer in timers] + [event(f"o-{n}") for n in range(20)]
        await asyncio.gather(*both)
        for run in runs:
            states = await it.states(run.id)
            forward = states["arrived"] == "SUCCEEDED" and "last" in states and "undo_first" not in states
            backward = states["arrived"] == "FAILED" and "last" not in states and "undo_first" in states
            assert forward or backward, states


async def test_a_step_of_a_dead_worker_is_found_by_its_lease_not_by_age(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        run = await it.start(order, Order(id="o-1"))
        change = await claimed(it, run.id, "first")
        assert change.decision.claimed is not None
        await it.value(
            "INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at) "
            "SELECT worker, 'rig', 'test', '{}', '{}', '{}', milepost.clock() + interval '1 hour' FROM milepost.step",
        )
        assert await it.waker.sweep() == 0, "its lease holds"
        await it.value("UPDATE milepost.worker SET expires_at = milepost.clock()")
        assert await it.waker.sweep() == 1
        assert (await it.states(run.id))["first"] == "PENDING"
        late = await it.engine.change(
            run.id, Succeeded("first", change.decision.claimed.fence, {"number": 9})
        )
        assert late is not None
        assert late.decision.answer == "ignored"
        assert (await it.states(run.id))["first"] == "PENDING"
        assert "step.late_result" in await it.history(run.id)
