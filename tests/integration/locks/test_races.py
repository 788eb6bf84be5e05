"""Who hands a lock on, who gives it out and who leaves the queue wait for each other, and see what the other did."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from milepost import RunRef
from milepost.sagas.facts import Act, Claim, Fact, Succeeded
from milepost.schemas.ids import SystemClock
from milepost.schemas.messages import TimerMessage

from tests.support.engine import worker_id
from tests.support.locks import Locks, Sale, blocked, locks, sale
from tests.support.waiting import until


async def change(it: Locks, connection: Any, run: RunRef, fact: Fact) -> None:
    """Apply a fact in a transaction that stays open."""
    done = await it.it.engine.changes.apply(connection, run.id, fact)
    assert done is not None and done.decision.answer == "changed", done and done.decision.reason


async def at_the_last_step(it: Locks, run: RunRef) -> Succeeded:
    """Bring a run that has begun to its last step; returns what ends it."""
    await it.step(run, "reserve")
    claim = await it.it.engine.change(run.id, Claim("ship", worker_id()))
    assert claim is not None and claim.decision.claimed is not None
    return Succeeded("ship", claim.decision.claimed.fence)


async def test_an_end_that_has_not_committed_is_waited_for(database_url: str) -> None:
    """The end has seen nobody in the queue; the newcomer has seen the holder. One of them has to look again."""
    order = sale()
    async with locks(database_url, order) as it, it.it.database.pool.acquire() as ending:
        first = await it.start(order, "o-1")
        ends = await at_the_last_step(it, first)
        async with it.it.database.pool.acquire() as connection, connection.transaction():
            newcomer = await it.it.service.start(connection, order, Sale(order="o-2"))
            end = ending.transaction()
            await end.start()
            await change(it, ending, first, ends)
        look = asyncio.create_task(it.look())
        await until(lambda: blocked(it.it.database.pool), what="the newcomer's look to wait")
        await asyncio.wait([look], timeout=0.2)
        assert not look.done()
        await end.commit()
        await look
        assert await it.holder() == newcomer.id


async def test_who_leaves_the_queue_is_not_given_the_lock(database_url: str) -> None:
    """Two stand in front of a free lock; the first one is being cancelled when the second one looks."""
    order = sale()
    async with locks(database_url, order) as it, it.it.database.pool.acquire() as cancelling:
        first = await it.start(order, "o-1")
        pool = it.it.database.pool
        async with pool.acquire() as one, pool.acquire() as two, one.transaction(), two.transaction():
            second = await it.it.service.start(one, order, Sale(order="o-2"))
            third = await it.it.service.start(two, order, Sale(order="o-3"))
            await it.sold(first)
        assert (await it.holder(), await it.waiting()) == (None, [second.id, third.id])
        cancel = cancelling.transaction()
        await cancel.start()
        await change(it, cancelling, second, Act("cancel", by="ann", reason="sold out", undo=False))
        look = asyncio.create_task(
            it.it.orchestrator.wake(TimerMessage(run=third.id, step=None, generation=0))
        )
        await until(lambda: blocked(pool), what="a look to wait")
        await cancel.commit()
        await look
        assert (await it.holder(), await it.waiting()) == (third.id, [])
        assert (await it.it.states(second.id))[""] == "CANCELLED"
        await it.look()
        assert await it.begun(third)


async def test_who_is_cancelled_as_its_turn_comes_hands_on(database_url: str) -> None:
    order = sale()
    async with locks(database_url, order) as it:
        first, second, third = [await it.start(order, f"o-{n}") for n in (1, 2, 3)]
        await it.sold(first)
        assert await it.holder() == second.id
        async with it.it.database.pool.acquire() as connection:
            await change(it, connection, second, Act("cancel", by="ann", reason="sold out", undo=True))
        await it.look()
        assert (await it.holder(), await it.begun(second), await it.begun(third)) == (third.id, False, True)


async def test_a_start_that_is_over_at_once_holds_up_nobody(database_url: str) -> None:
    order, late = sale(), sale("late", deadline=lambda o: o.until)
    async with locks(database_url, order, late) as it, it.it.database.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        passed = SystemClock().now() - timedelta(days=1)
        await it.it.service.start(connection, late, Sale(order="l-1", item="sugar", until=passed))
        held = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert await it.it.value(held) == 0
        await transaction.commit()
        assert await it.it.value("SELECT count(*) FROM milepost.resource") == 0


async def test_a_lock_that_stayed_with_a_run_that_is_over_is_taken_from_it(database_url: str) -> None:
    """As a process of an older version leaves it, which knows nothing of locks."""
    order = sale()
    async with locks(database_url, order) as it:
        first, second = await it.start(order, "o-1"), await it.start(order, "o-2")
        await it.it.database.pool.execute(
            "UPDATE milepost.run SET state = 'SUCCEEDED', wake_at = NULL, finished_at = now() WHERE id = $1",
            first.id,
        )
        await it.look()
        assert await it.it.value("SELECT run_id FROM milepost.resource") == second.id
