"""`service.once` on a real database: what is stored, what is raised, and how often the bank pays."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import httpx
import pytest
from milepost import (
    IdempotencyKeyReused,
    OperationInProgress,
    OutcomeUnknown,
    Refused,
    Repeat,
)
from milepost.inbox.operation_model import operation_key

from tests.support.bank import Receipt, Refund
from tests.support.once_house import House, house, loses_the_answer

__all__ = ["house"]


async def test_the_first_call_does_it_and_others_get_the_stored_answer(house: House) -> None:
    first = await house.once()
    assert [await house.once() for _ in range(3)] == [first] * 3
    assert await house.bank.counts() == (1, 1, 0)
    row = await house.row()
    assert (row["state"], row["fence"], row["attempts"], row["wake_at"]) == ("SUCCEEDED", 1, 1, None)
    assert (row["resource_type"], row["resource_id"]) == ("refund", first.resource_id)
    assert abs(row["expires_at"] - row["updated_at"] - timedelta(days=30)) < timedelta(seconds=1)


async def test_twenty_at_once_cause_one_effect(house: House) -> None:
    async def one() -> Receipt | str:
        try:
            return await house.once(repeat=Repeat.NEVER)
        except OperationInProgress as busy:
            assert busy.retry_after is not None and busy.retriable
            return busy.code

    answers = await asyncio.gather(*(one() for _ in range(20)))
    assert await house.bank.counts() == (1, 1, 0)
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert receipts and len(receipts) + answers.count("MP461") == 20
    assert await house.once(repeat=Repeat.NEVER) == receipts[0]


async def test_another_request_is_refused_whatever_became_of_the_first(house: House) -> None:
    await house.once()
    with pytest.raises(IdempotencyKeyReused, match="MP460"):
        await house.once(amount=7)
    for state in ("'RUNNING', wake_at = now() + '1 h'", "'UNKNOWN', wake_at = now(), doubt_at = now()"):
        await house.database.pool.execute(f"UPDATE milepost.operation SET expires_at = NULL, state = {state}")
        with pytest.raises(IdempotencyKeyReused):
            await house.once(amount=7)
    assert await house.bank.counts() == (1, 1, 0)


async def test_kinds_keys_and_tenants_are_independent(house: House) -> None:
    for more in ({}, {"kind": "gift"}, {"key": "o-2"}, {"tenant": "acme"}, {"tenant": "umbrella"}):
        await house.once(**more)  # type: ignore[arg-type]
    assert len(set(house.seen)) == 5
    assert await house.bank.counts() == (5, 5, 0)
    assert house.seen[0] == operation_key(("", "refund", "o-1"))


async def test_only_a_hash_of_the_request_is_kept(house: House) -> None:
    request = Refund(order="o-1", note="Jane Doe, 1 Main Street")
    await house.once(request=request)
    assert "Jane" not in json.dumps(await house.row(), default=str)
    assert len((await house.row())["fingerprint"]) == 32


async def test_the_same_meaning_has_the_same_fingerprint(house: House) -> None:
    class Wider(Refund):
        added_later: str = "default"

    tags = [f"t-{n}" for n in range(20)]
    await house.once(request=Refund(order="o-1", tags=set(tags)))
    await house.once(request=Refund(order="o-1", amount=100, tags={*tags[10:], *tags[:10]}))
    await house.once(request=Wider(order="o-1", tags=set(tags)))
    with pytest.raises(IdempotencyKeyReused):
        await house.once(request=Wider(order="o-1", tags=set(tags), added_later="x"))


async def test_a_definite_no_is_stored_and_said_again_the_same(house: House) -> None:
    async def no(key: str) -> Receipt:
        raise Refused("CARD_EXPIRED", "since May")

    async def missing(key: str) -> Receipt:
        response = httpx.Response(404, request=httpx.Request("POST", "http://bank"))
        raise httpx.HTTPStatusError("not found", request=response.request, response=response)

    for key, do, code in (("o-1", no, "CARD_EXPIRED"), ("o-2", missing, "HTTP_404")):
        for _ in range(3):
            with pytest.raises(Refused) as refused:
                await house.once(key, do=do, repeat=Repeat.NEVER)
            assert refused.value.code == code
    assert len(house.seen) == 2, "it is asked once each"
    assert refused.value.message
    states = await house.database.pool.fetch("SELECT state FROM milepost.operation")
    assert [row["state"] for row in states] == ["FAILED_FINAL"] * 2


@pytest.mark.parametrize("repeat", list(Repeat))
async def test_what_was_not_sent_may_be_called_again(house: House, repeat: Repeat) -> None:
    async def away(key: str) -> Receipt:
        raise httpx.ConnectError("refused")

    with pytest.raises(httpx.ConnectError):
        await house.once(do=away, repeat=repeat)
    row = await house.row()
    assert (row["state"], row["code"], row["doubt_at"]) == ("PENDING", "CONNECT_FAILED", None)
    await house.once(repeat=repeat)
    assert await house.bank.counts() == (1, 1, 0)
    assert house.seen[0] == house.seen[1], "the key never changes with the attempt"
    assert (await house.row())["attempts"] == 2


async def test_safe_repeats_a_lost_answer(house: House) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await house.once(do=loses_the_answer(house.bank))
    assert ((await house.row())["state"], (await house.row())["doubt_at"] is None) == ("PENDING", False)
    await house.once()
    assert await house.bank.counts() == (2, 1, 0)


async def test_a_doubt_of_earlier_code_is_not_forgotten_when_the_declaration_changes(house: House) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.SAFE)
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.NEVER)
    receipt = await house.once(repeat=Repeat.ASK_FIRST)
    assert (receipt.amount, await house.bank.counts()) == (100, (1, 1, 1))
