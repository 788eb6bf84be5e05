"""`service.once` with results that cannot be kept, with wrong calls, and without its store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost import (
    ConnectError,
    Milepost,
    OperationInProgress,
    Repeat,
    StateError,
    UsageError,
)
from pydantic import BaseModel, SecretStr

from tests.support.bank import Receipt, Refund
from tests.support.engine import settings_for
from tests.support.once_house import House, house
from tests.support.waiting import until

__all__ = ["house"]


async def test_results_that_cannot_be_kept(house: House) -> None:
    async def large(key: str) -> Receipt:
        return Receipt(resource_id="x" * 1000, amount=1)

    async def wrong(key: str) -> Receipt:
        return Refund(order="o")  # type: ignore[return-value]

    async def nul(key: str) -> Receipt:
        return Receipt(resource_id="\x00", amount=1)

    for number, do in enumerate((large, wrong, nul)):
        with pytest.raises(UsageError, match="MP464"):
            await house.once(f"k-{number}", do=do, repeat=Repeat.NEVER)
    states = await house.database.pool.fetch("SELECT state, code FROM milepost.operation")
    assert [tuple(row) for row in states] == [("UNKNOWN", "MP464")] * 3


async def test_no_result(house: House) -> None:
    async def nothing(key: str) -> None:
        await house.bank.pay(key)

    given: dict[str, Any] = {
        "kind": "note",
        "key": "o-1",
        "request": Refund(order="o"),
        "repeat": Repeat.SAFE,
    }
    for _ in range(2):
        assert await house.service.once(**given, result=type(None), do=nothing) is None
    assert await house.bank.counts() == (1, 1, 0)


async def test_a_stored_result_of_another_form_is_named(house: House) -> None:
    class Other(BaseModel):
        number: int

    await house.once()
    with pytest.raises(StateError, match="MP459"):
        await house.once(result=Other)


async def test_wrong_calls(house: House) -> None:
    class Card(BaseModel):
        number: SecretStr

    wrong: list[dict[str, Any]] = [
        {"kind": ""},
        {"kind": "http"},
        {"key": ""},
        {"key": "a\x00"},
        {"key": "x" * 1001},
        {"tenant": "\ud800"},
        {"repeat": Repeat.ASK_FIRST, "probe": None},
        {"keep": timedelta(0)},
        {"settle": timedelta(seconds=-1)},
        {"request": Card(number=SecretStr("1"))},
        {"request": Refund(order="\ud800")},
    ]
    for more in wrong:
        with pytest.raises(UsageError, match="MP463"):
            await house.once(**more)
    assert (house.seen, await house.bank.counts()) == ([], (0, 0, 0))


async def test_without_the_store_nothing_is_done(house: House) -> None:
    service = Milepost("once", settings=settings_for("postgresql://nobody@127.0.0.1:1/nowhere"))
    away = House(service, house.bank, house.database)
    with pytest.raises(ConnectError, match="MP501"):
        await away.once()
    await house.database.pool.execute("ALTER TABLE milepost.operation RENAME TO gone")
    with pytest.raises(ConnectError, match=r"MP468.*nothing was begun"):
        await house.once()
    await house.database.pool.execute("ALTER TABLE milepost.gone RENAME TO operation")
    assert (away.seen, house.seen) == ([], [])


async def test_a_store_that_goes_away_after_the_effect(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.consumers.held.STORE_WITHIN", 0.3)
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.5)})
    rename = "ALTER TABLE milepost.operation RENAME TO gone"

    async def pay(key: str) -> Receipt:
        receipt = await house.bank.pay(key)
        await house.database.pool.execute(rename)
        return receipt

    with pytest.raises(ConnectError, match=r"MP468.*did not store"):
        await house.once(do=pay, repeat=Repeat.ASK_FIRST)
    await house.database.pool.execute("ALTER TABLE milepost.gone RENAME TO operation")

    async def settled() -> Receipt | None:
        try:
            return await house.once(repeat=Repeat.ASK_FIRST)
        except OperationInProgress:
            return None

    assert (await until(settled, within=30, what="the end of the lease")).amount == 100
    assert await house.bank.counts() == (1, 1, 1)
