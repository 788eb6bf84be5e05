"""`service.once` over time: records that expire, callers that are cancelled, leases that are lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from milepost import (
    IdempotencyKeyReused,
    OperationInProgress,
    OutcomeUnknown,
    Repeat,
)
from milepost.inbox.operation_model import Act, Asked, decide
from milepost.inbox.operations import Operations
from milepost.schemas.ids import SystemIds

from tests.support.bank import Receipt
from tests.support.once_house import House, house
from tests.support.waiting import until

__all__ = ["house"]


async def test_an_expired_record_is_a_new_operation_under_the_same_key(house: House) -> None:
    await house.once(keep=timedelta(hours=1))
    first = await house.row()
    await house.clock("59 minutes")
    with pytest.raises(IdempotencyKeyReused):
        await house.once(amount=7)
    await house.clock("61 minutes")
    assert (await house.once(amount=7, do=lambda key: house.bank.pay(key, 7))).amount == 7
    second = await house.row()
    assert (second["fence"], second["id"] != first["id"], second["attempts"]) == (2, True, 1)
    assert len(set(house.seen)) == 1


async def test_a_caller_that_is_cancelled(house: House) -> None:
    for repeat, state in ((Repeat.SAFE, "PENDING"), (Repeat.NEVER, "UNKNOWN")):
        begun = asyncio.Event()

        async def slow(key: str, begun: asyncio.Event = begun) -> Receipt:
            begun.set()
            await asyncio.sleep(3600)
            raise AssertionError

        call = asyncio.create_task(house.once(repeat.value, do=slow, repeat=repeat))
        await begun.wait()
        with pytest.raises(OperationInProgress):
            await house.once(repeat.value, repeat=repeat)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        row = await house.row(f"SELECT * FROM milepost.operation WHERE key = '{repeat.value}'")
        assert (row["state"], row["code"]) == (state, "CALLER_CANCELLED")


async def test_a_slow_one_keeps_its_lease(house: House) -> None:
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.6)})
    go_on = asyncio.Event()

    async def slow(key: str) -> Receipt:
        await go_on.wait()
        return await house.bank.pay(key)

    call = asyncio.create_task(house.once(do=slow, repeat=Repeat.NEVER))
    await until(lambda: _renewed(house), within=30, what="a renewal")
    with pytest.raises(OperationInProgress):
        await house.once(repeat=Repeat.NEVER)
    go_on.set()
    await call
    assert (await house.bank.counts(), (await house.row())["state"]) == ((1, 1, 0), "SUCCEEDED")


async def _renewed(house: House) -> bool:
    """Whether the lease has outlived its first length."""
    query = "SELECT wake_at > created_at + interval '2 s' FROM milepost.operation"
    return bool(await house.database.pool.fetchval(query))


@pytest.mark.parametrize("repeat", [Repeat.SAFE, Repeat.NEVER])
async def test_a_lost_lease_cancels_what_runs(house: House, repeat: Repeat) -> None:
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.6)})
    cancelled: list[bool] = []

    async def slow(key: str) -> Receipt:
        await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() - interval '1 s'")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError

    with pytest.raises(OperationInProgress if repeat is Repeat.SAFE else OutcomeUnknown):
        await asyncio.wait_for(house.once(do=slow, repeat=repeat), 30)
    assert cancelled == [True]
    row = await house.row()
    assert (row["state"], row["code"]) == ("PENDING" if repeat is Repeat.SAFE else "UNKNOWN", "WORKER_LOST")


async def test_a_zombie_is_fenced_out_and_its_late_success_is_taken_where_nobody_went_on(
    house: House,
) -> None:
    for takes_over, state in ((True, "SUCCEEDED"), (False, "SUCCEEDED")):
        key = str(takes_over)
        end = f"UPDATE milepost.operation SET wake_at = now() - interval '1 s' WHERE key = '{key}'"

        async def frozen(operation: str, key: str = key, end: str = end, over: bool = takes_over) -> Receipt:
            await house.bank.pay(operation)
            await house.database.pool.execute(end)
            if over:
                await house.once(key, repeat=Repeat.SAFE)
            else:
                with pytest.raises(OutcomeUnknown):
                    await house.once(key, repeat=Repeat.NEVER)
                row = await house.row(f"SELECT state FROM milepost.operation WHERE key = '{key}'")
                assert row["state"] == "UNKNOWN"
            return Receipt(resource_id="late", amount=1)

        if takes_over:
            with pytest.raises(OutcomeUnknown):
                await house.once(key, do=frozen, repeat=Repeat.SAFE)
        else:
            await house.once(key, do=frozen, repeat=Repeat.NEVER)
        row = await house.row(f"SELECT * FROM milepost.operation WHERE key = '{key}'")
        assert (row["state"], row["resource_id"] == "late") == (state, not takes_over)


async def test_a_lease_that_was_renewed_after_it_was_read_is_not_taken_over(house: House) -> None:
    operations = Operations(house.database.pool, "once", SystemIds(), timedelta(seconds=30))
    name, asked, day = ("", "refund", "o-1"), Asked(b"f", Repeat.SAFE), timedelta(days=1)
    hold = await operations.begin(name, asked, day)
    assert hold is not None
    await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() - interval '1 s'")
    found = await operations.read(name)
    assert found is not None and decide(found[0], asked, found[1]).act is Act.TRY
    await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() + interval '1 s'")
    assert await operations.claim(name, found[0], Repeat.SAFE, day, doubt_at=None) is None
    assert await operations.renew(hold), "whoever holds it goes on"
