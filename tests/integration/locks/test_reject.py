"""With if_locked="reject" a start is refused while another run has the lock, and says which run that is."""

from __future__ import annotations

import asyncio

import pytest
from milepost import StateError

from tests.support.locks import Sale, blocked, locks, sale
from tests.support.waiting import until


async def test_a_refused_start_names_the_holder_and_leaves_nothing(database_url: str) -> None:
    order = sale(if_locked="reject")
    async with locks(database_url, order) as it:
        first = await it.start(order, "o-1")
        await it.it.database.pool.execute("CREATE TABLE mine (order_id text)")
        async with it.it.database.pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO mine VALUES ('before')")
            with pytest.raises(StateError) as refused:
                await it.it.service.start(connection, order, Sale(order="o-2"))
            await connection.execute("INSERT INTO mine VALUES ('after')")
        since = await it.it.value("SELECT since FROM milepost.resource")
        assert refused.value.code == "MP334"
        assert refused.value.text == (
            "start(): order/o-2 needs the lock stock:tea, which order/o-1 has since "
            f"{since:%Y-%m-%d %H:%M:%SZ} (it is PENDING). Nothing was started. Start it again when that run is over, "
            f'or say if_locked="queue". Run: {first.id}'
        )
        assert await it.it.value("SELECT count(*) FROM mine") == 2, "the caller's transaction goes on"
        for table, rows in {"run": 1, "run_key": 1, "step": 1, "outbox": 1, "resource_queue": 0}.items():
            assert await it.it.value(f"SELECT count(*) FROM milepost.{table}") == rows, table


async def test_the_run_itself_is_never_refused(database_url: str) -> None:
    order = sale(if_locked="reject")
    async with locks(database_url, order) as it:
        first = await it.start(order, "o-1")
        assert await it.start(order, "o-1") == first
        with pytest.raises(StateError, match="MP302"):
            await it.start(order, "o-1", item="coffee")


async def test_what_was_refused_may_be_started_once_the_lock_is_free(database_url: str) -> None:
    order = sale(if_locked="reject")
    async with locks(database_url, order) as it:
        first = await it.start(order, "o-1")
        with pytest.raises(StateError, match="MP334"):
            await it.start(order, "o-2")
        await it.sold(first)
        second = await it.start(order, "o-2")
        assert await it.begun(second)


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_starts_at_one_moment_one_is_refused(database_url: str, commits: bool) -> None:
    order = sale(if_locked="reject")
    async with locks(database_url, order) as it:
        async with it.it.database.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            first = await it.it.service.start(connection, order, Sale(order="o-1"))
            other = asyncio.create_task(it.start(order, "o-2"))
            await until(lambda: blocked(it.it.database.pool), what="the second start to wait for the first")
            await (transaction.commit() if commits else transaction.rollback())
        if commits:
            with pytest.raises(StateError, match=f"MP334 .*order/o-1 has since .* Run: {first.id}"):
                await other
        else:
            assert await it.begun(await other)


async def test_of_twenty_starts_one_holds_and_the_others_are_refused(database_url: str) -> None:
    order = sale(if_locked="reject")
    async with locks(database_url, order, max_size=20) as it:
        got = await asyncio.gather(*(it.start(order, f"o-{n}") for n in range(20)), return_exceptions=True)
        refused = [error for error in got if isinstance(error, StateError) and error.code == "MP334"]
        assert len(refused) == 19
        assert await it.it.value("SELECT count(*) FROM milepost.run_key") == 1


async def test_one_that_refuses_and_one_that_queues_share_a_lock(database_url: str) -> None:
    order, urgent = sale(), sale("urgent", if_locked="reject")
    async with locks(database_url, order, urgent) as it:
        first = await it.start(order, "o-1")
        second = await it.start(order, "o-2")
        await it.sold(first)
        with pytest.raises(StateError, match=r"MP334 .*which order/o-2 has since .*PENDING"):
            await it.start(urgent, "u-1")
        await it.look()
        await it.sold(second)
        assert await it.begun(await it.start(urgent, "u-1"))
