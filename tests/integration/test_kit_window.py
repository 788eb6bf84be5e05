"""The bank dedupes on a key for a day; what was asked of it before is not asked again after that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost import Context, Repeat, Retry, RunState, Saga, Then, UsageError
from pydantic import BaseModel

from tests.support.kitshop import opened

BY: dict[str, Any] = {"by": "ann", "reason": "looked it up"}


class Order(BaseModel):
    id: str


async def test_on_day_three_nobody_is_charged_under_a_key_that_was_forgotten() -> None:
    calls: list[str] = []
    saga = Saga("window", version=1, input=Order, key=lambda order: order.id)

    @saga.step(
        repeat=Repeat.SAFE,
        window=timedelta(hours=24),
        retry=Retry(attempts=1),
        on_failure=Then.PERSON,
    )
    async def charge(ctx: Context[Order]) -> None:
        calls.append(ctx.idempotency_key)

    saga.flow(charge)
    async with opened(saga) as (kit, _, _):
        kit.lose_reply(charge, times=2)
        run = await kit.start(saga, Order(id="o-1"))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        await kit.advance(timedelta(hours=23))
        await kit.retry(run, charge, **BY)  # the bank knows the key: no second charge
        await kit.advance(timedelta(0))
        assert len(calls) == 2
        assert len(set(calls)) == 1
        await kit.advance(timedelta(hours=2))
        with pytest.raises(UsageError, match=r"MP375.*may have taken effect"):
            await kit.retry(run, charge, **BY)
        assert len(calls) == 2
        await kit.retry(run, charge, did_not_happen=True, **BY)
        await kit.until(run, RunState.SUCCEEDED)
        assert len(calls) == 3
