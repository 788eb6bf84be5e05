"""`service.once` in places where an answer could be lost: doubt, cancellation, a pool that is used up, long keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from milepost import ConnectError, Milepost, OutcomeUnknown, Repeat, UsageError
from milepost.inbox import operations
from milepost.inbox.operation_model import Ending
from milepost.inbox.operations import Hold, Operations
from milepost.streams.database import Database

from tests.support.bank import Bank, Receipt, Refund
from tests.support.engine import settings_for
from tests.support.once_house import House


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    settings = settings_for(database_url)
    service, database = Milepost("shop", settings=settings), Database(settings)
    await database.open()
    bank = Bank(database.pool, dedupes=False)
    await bank.open()
    try:
        yield House(service, bank, database)
    finally:
        await service.close()
        await database.close()


@pytest.mark.parametrize("later", [Repeat.NEVER, Repeat.ASK_FIRST])
async def test_a_try_that_was_not_sent_says_nothing_of_the_one_before(house: House, later: Repeat) -> None:
    """The first SAFE try lost its answer, the second never left; code that says NEVER by now must not do it again."""

    async def lost(key: str) -> Receipt:
        await house.bank.pay(key)
        raise httpx.ReadTimeout("no answer")

    async def down(key: str) -> Receipt:
        raise httpx.ConnectError("refused")

    with pytest.raises(httpx.ReadTimeout):
        await house.once(do=lost)
    doubt = (await house.row())["doubt_at"]
    with pytest.raises(httpx.ConnectError):
        await house.once(do=down)
    assert (await house.row())["doubt_at"] == doubt is not None
    if later is Repeat.NEVER:
        with pytest.raises(OutcomeUnknown):
            await house.once(repeat=later)
    else:
        assert (await house.once(repeat=later)).amount == 100
    assert await house.bank.count("effect") == 1


async def test_an_ending_is_stored_although_the_caller_is_cancelled(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, finish = asyncio.Event(), Operations.finish

    async def slowly(self: Operations, hold: Hold, ending: Ending) -> bool:
        storing.set()
        await asyncio.sleep(0.2)
        return await finish(self, hold, ending)

    monkeypatch.setattr(Operations, "finish", slowly)
    call = asyncio.create_task(house.once(repeat=Repeat.NEVER))
    await asyncio.wait_for(storing.wait(), 30)
    for _ in range(2):
        call.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await house.row())["state"] == "SUCCEEDED"
    assert (await house.once(repeat=Repeat.NEVER)).amount == 100
    assert await house.bank.count("effect") == 1


async def test_calls_inside_transactions_that_use_the_pool_up_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the pool's ten connections and wait for an eleventh: each hears that nothing was begun."""
    monkeypatch.setattr(operations, "ANSWER_WITHIN", 0.5)
    begun = asyncio.Barrier(10)

    async def one(n: int) -> None:
        async with house.service.transaction():
            await begun.wait()
            await house.once(f"o-{n}")

    async with asyncio.timeout(60):
        found = await asyncio.gather(*(one(n) for n in range(10)), return_exceptions=True)
    assert any(isinstance(error, ConnectError) and error.code == "MP468" for error in found)
    assert all(error is None or isinstance(error, ConnectError) for error in found)
    assert (await house.once("after")).amount == 100


async def test_forty_at_once_on_ten_connections(house: House) -> None:
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(house.once(f"o-{n}", repeat=Repeat.NEVER) for n in range(40)))
    assert len(found) == await house.bank.count("effect") == 40


async def test_a_key_that_no_index_takes_is_a_wrong_call(house: House) -> None:
    """PostgreSQL indexes no more than 2,704 bytes, however few characters that are."""
    key = "".join(chr(0x10000 + n * 37) for n in range(1000))
    with pytest.raises(UsageError, match="MP463"):
        await house.service.once(
            kind="refund",
            key=key,
            request=Refund(order="o"),
            result=Receipt,
            repeat=Repeat.NEVER,
            do=house.bank.pay,
            keep=timedelta(days=1),
        )
    assert await house.bank.count("call") == 0
