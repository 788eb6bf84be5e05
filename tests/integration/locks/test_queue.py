"""One run at a time has a lock; the others begin when it is their turn, in order of arrival, and none is forgotten."""

from __future__ import annotations

import asyncio
import secrets
from uuid import UUID

import pytest
from milepost import RunRef, UsageError
from milepost.sagas.facts import Claim

from tests.support.engine import worker_id
from tests.support.locks import Locks, Sale, blocked, locks, sale
from tests.support.waiting import until


async def three(it: Locks) -> list[RunRef]:
    """Start three orders for one item."""
    return [await it.start(it.it.service.sagas[0], f"o-{n}") for n in (1, 2, 3)]


async def test_three_orders_for_one_item_go_one_after_the_other(database_url: str) -> None:
    async with locks(database_url, sale()) as it:
        runs = await three(it)
        assert await it.holder() == runs[0].id
        assert await it.waiting() == [runs[1].id, runs[2].id]
        for n, run in enumerate(runs):
            await it.look()
            assert [await it.begun(other) for other in runs] == [place <= n for place in range(3)]
            await it.sold(run)
        assert it.ledger == [(f"o-{n}", what) for n in (1, 2, 3) for what in ("reserve", "ship")]
        assert (await it.holder(), await it.waiting()) == (None, [])
        assert (await it.it.history(runs[2].id))[:4] == [
            "run.started",
            "run.queued",
            "run.lock_granted",
            "step.started",
        ]


async def test_the_name_counts_and_the_tenant_but_not_the_saga(database_url: str) -> None:
    order, repair = sale(), sale("repair")
    async with locks(database_url, order, repair) as it:
        await it.start(order, "o-1")
        other = await it.start(order, "o-2", item="coffee")
        async with it.it.database.pool.acquire() as connection, connection.transaction():
            elsewhere = await it.it.service.start(connection, order, Sale(order="o-1"), tenant="b")
        same = await it.start(repair, "o-1")
        assert [await it.begun(run) for run in (other, elsewhere, same)] == [True, True, False]


async def test_a_run_starts_once_whether_it_holds_or_waits(database_url: str) -> None:
    order = sale()
    async with locks(database_url, order) as it:
        runs = await three(it)
        assert await three(it) == runs, "it never waits for itself"
        assert await it.waiting() == [runs[1].id, runs[2].id]
        assert len(await it.messages("milepost.timer")) == 2


async def test_a_queued_run_has_nothing_to_claim(database_url: str) -> None:
    async with locks(database_url, sale()) as it:
        _, second, _ = await three(it)
        change = await it.it.engine.change(second.id, Claim("reserve", worker_id()))
        assert change is not None and change.decision.answer == "refused"
        await it.look()
        await it.look()
        assert await it.it.states(second.id) == {"": "PENDING"}


async def test_a_repeated_grant_begins_once(database_url: str) -> None:
    async with locks(database_url, sale()) as it:
        first, second, _ = await three(it)
        await it.look()
        await it.sold(first)
        (body,) = await it.messages("milepost.timer")
        it.read.clear()
        await asyncio.gather(it.look(), it.look(), it.look())
        assert body["run"] == str(second.id)
        assert (await it.it.history(second.id)).count("run.lock_granted") == 1
        assert len([m for m in await it.it.outgoing("milepost.work") if m["run"] == str(second.id)]) == 1


async def test_a_lost_grant_is_found_by_the_waker(database_url: str) -> None:
    async with locks(database_url, sale()) as it:
        first, second, third = await three(it)
        await it.sold(first)
        assert len(await it.messages("milepost.timer")) == 3, (
            "two that wait, and one whose turn has come: all lost"
        )
        assert await it.holder() == second.id and not await it.begun(second)
        await it.it.clock("11 seconds")
        assert await it.it.waker.tick() == 2, "both of them look by themselves"
        await it.look()
        assert (await it.begun(second), await it.begun(third)) == (True, False)
        await it.sold(second)
        await it.look()
        assert await it.begun(third)


async def test_who_waits_long_is_looked_at_less_often(database_url: str) -> None:
    async with locks(database_url, sale()) as it:
        _, second, _ = await three(it)
        query = "SELECT extract(epoch FROM wake_at - milepost.clock())::float FROM milepost.run WHERE id = $1"
        pauses = []
        for ahead in ("0 seconds", "60 seconds", "1 day"):
            await it.it.clock(ahead)
            it.read.clear()
            await it.look()
            pauses.append(await it.it.value(query, second.id))
        assert pauses == pytest.approx([10, 60, 600], abs=5)


async def test_a_run_that_ends_while_another_comes_gives_the_lock_to_it(database_url: str) -> None:
    """The newcomer saw the holder, and the holder's end does not see the newcomer: it is not committed yet."""
    order = sale()
    async with locks(database_url, order) as it:
        first = await it.start(order, "o-1")
        async with it.it.database.pool.acquire() as connection, connection.transaction():
            late = await it.it.service.start(connection, order, Sale(order="late"))
            await it.sold(first)
            assert await it.holder() is None
        assert await it.waiting() == [late.id] and not await it.begun(late)
        await it.look()
        assert await it.holder() == late.id
        await it.look()
        assert await it.begun(late)


async def test_a_start_that_is_under_way_is_not_waited_for_by_the_engine(database_url: str) -> None:
    order = sale()
    async with locks(database_url, order) as it:
        first = await it.start(order, "o-1")
        async with it.it.database.pool.acquire() as one, it.it.database.pool.acquire() as two:
            late, newcomer = one.transaction(), two.transaction()
            await late.start()
            waiting = await it.it.service.start(one, order, Sale(order="late"))
            await it.sold(first)
            await newcomer.start()
            await it.it.service.start(two, order, Sale(order="newcomer"))
            await late.commit()
            async with asyncio.timeout(5):
                await it.look()
            assert await it.holder() is None
            await newcomer.rollback()
        await it.it.clock("11 seconds")
        await it.it.waker.tick()
        await it.look()
        await it.look()
        assert await it.begun(waiting)


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_starts_at_one_moment_one_holds(database_url: str, commits: bool) -> None:
    order = sale()
    async with locks(database_url, order) as it:
        async with it.it.database.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            first = await it.it.service.start(connection, order, Sale(order="o-1"))
            other = asyncio.create_task(it.start(order, "o-2"))
            await until(lambda: blocked(it.it.database.pool), what="the second start to wait for the first")
            await (transaction.commit() if commits else transaction.rollback())
        second = await other
        assert await it.begun(second) is not commits
        assert await it.holder() == (first.id if commits else second.id)
        assert await it.waiting() == ([second.id] if commits else [])


async def test_two_runs_of_one_transaction(database_url: str) -> None:
    order = sale()
    async with locks(database_url, order) as it:
        async with it.it.database.pool.acquire() as connection, connection.transaction():
            runs = [await it.it.service.start(connection, order, Sale(order=f"o-{n}")) for n in (1, 2)]
        assert [await it.begun(run) for run in runs] == [True, False]


async def test_twenty_starters_and_workers_at_once_are_serial(database_url: str) -> None:
    """Starts, ends and looks of all runs at once: nobody deadlocks, nobody is forgotten, no two are active."""
    order = sale()
    async with locks(database_url, order, max_size=20) as it:
        done: list[str] = []

        async def work() -> None:
            while len(done) < 20:
                await it.look()
                for body in await it.messages("milepost.work"):
                    if body["step"] == "reserve":
                        run = RunRef(id=UUID(body["run"]), tenant="", saga="order", key=body["run"])
                        await it.sold(run)
                        done.append(body["run"])
                await asyncio.sleep(0)

        async with asyncio.timeout(60):
            runs, *_ = await asyncio.gather(
                asyncio.gather(*(it.start(order, f"o-{n}") for n in range(20))), work(), work(), work()
            )
        pairs = list(zip(it.ledger[::2], it.ledger[1::2], strict=True))
        assert all(a[0] == b[0] and (a[1], b[1]) == ("reserve", "ship") for a, b in pairs), it.ledger
        assert sorted(done) == sorted(str(run.id) for run in runs)
        assert (await it.holder(), await it.waiting()) == (None, [])


async def test_the_runtime_role_can_do_it(database_url: str) -> None:
    order, role = sale(), f"milepost_test_{secrets.token_hex(6)}"
    async with locks(database_url, order) as owner:
        await owner.it.database.pool.execute(f"CREATE ROLE {role} LOGIN IN ROLE milepost_runtime")
        try:
            async with locks(f"postgresql://{role}@{database_url.rpartition('@')[2]}", order) as it:
                for run in await three(it):
                    await it.look()
                    await it.sold(run)
                assert (await it.holder(), await it.waiting()) == (None, [])
        finally:
            await owner.it.database.pool.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "is empty"), ("x" * 513, "longer than 512"), ("a\x00", r"U\+0000"), (7, "is no text but int")],
)
async def test_a_lock_that_has_no_name_is_refused(database_url: str, name: object, words: str) -> None:
    order = sale(lock=lambda _: name)
    async with locks(database_url, order) as it:
        with pytest.raises(UsageError, match=rf"MP333 order v1: lock= returned .*{words}"):
            await it.start(order, "o-1")
        assert await it.it.value("SELECT count(*) FROM milepost.run_key") == 0
