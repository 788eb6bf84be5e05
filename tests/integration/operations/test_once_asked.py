"""`service.once` where nobody knows the outcome: it is asked for, or a person says."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import (
    Absent,
    Failed,
    InProgress,
    OperationInProgress,
    OutcomeUnknown,
    Probe,
    Refused,
    Repeat,
)

from tests.support.bank import Receipt
from tests.support.once_house import House, house, loses_the_answer, lost

__all__ = ["house"]


async def test_ask_first_asks_and_finds(house: House) -> None:
    with pytest.raises(OutcomeUnknown, match="MP462") as unknown:
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.ASK_FIRST)
    assert isinstance(unknown.value.__cause__, httpx.ReadTimeout)
    assert (await house.row())["state"] == "UNKNOWN"
    receipt = await house.once(repeat=Repeat.ASK_FIRST)
    assert (receipt.amount, await house.bank.counts()) == (100, (1, 1, 1))
    await house.once(repeat=Repeat.ASK_FIRST)
    assert await house.bank.counts() == (1, 1, 1)


async def test_absent_counts_only_when_it_has_settled(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=lost, repeat=Repeat.ASK_FIRST)
    doubt = (await house.row())["doubt_at"]
    minute = timedelta(minutes=1)
    with pytest.raises(OutcomeUnknown) as unknown:
        await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert unknown.value.retry_after is not None and timedelta(0) < unknown.value.retry_after <= minute
    row = await house.row()
    assert (row["state"], row["code"], row["doubt_at"]) == ("UNKNOWN", "NOT_SETTLED", doubt)
    assert await house.bank.counts() == (0, 0, 1)
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert await house.bank.counts() == (0, 0, 1), "it is not asked before asking makes sense"
    await house.clock("61 seconds")
    await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert await house.bank.counts() == (1, 1, 2)


async def answers(answer: Probe[Receipt] | Exception, key: str) -> Probe[Receipt]:
    """A probe that says something."""
    if isinstance(answer, Exception):
        raise answer
    return answer


async def test_the_other_answers_of_a_probe(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=lost, repeat=Repeat.ASK_FIRST)

    async def asked(answer: Any) -> None:
        await house.once(repeat=Repeat.ASK_FIRST, probe=lambda key: answers(answer, key))

    with pytest.raises(OutcomeUnknown, match="CONNECT_FAILED"):
        await asked(httpx.ConnectError("away"))
    assert (await house.row())["state"] == "UNKNOWN"
    with pytest.raises(
        OutcomeUnknown, match=r"BAD_ANSWER: the probe returned None; .*Absent\(\), InProgress\(\)"
    ):
        await asked(None)
    with pytest.raises(OutcomeUnknown, match=r"the probe returned the class Absent, without \(\)"):
        await asked(Absent)
    with pytest.raises(OutcomeUnknown) as unknown:
        await asked(InProgress(timedelta(hours=1)))
    assert unknown.value.retry_after == timedelta(hours=1)
    await house.clock("2 hours")
    with pytest.raises(Refused, match="NO_MONEY"):
        await asked(Failed("NO_MONEY"))
    with pytest.raises(Refused, match="NO_MONEY"):
        await asked(Absent())
    assert await house.bank.counts() == (0, 0, 0)


async def test_two_who_ask_at_once_ask_once(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.ASK_FIRST)
    results = await asyncio.gather(
        *(house.once(repeat=Repeat.ASK_FIRST) for _ in range(10)), return_exceptions=True
    )
    assert {type(result) for result in results} <= {Receipt, OperationInProgress}
    assert await house.bank.counts() == (1, 1, 1)


async def test_never_goes_to_a_person(house: House) -> None:
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as unknown:
            await house.once(do=loses_the_answer(house.bank), repeat=Repeat.NEVER)
    assert unknown.value.retry_after is None
    assert await house.bank.counts() == (1, 1, 0)
    row = await house.row()
    assert (row["state"], row["expires_at"]) == ("UNKNOWN", None)
    await house.clock("1000 days")
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.NEVER)
