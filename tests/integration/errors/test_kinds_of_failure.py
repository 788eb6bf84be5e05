"""What a step raises itself, through the worker: another try, the end of the step, the end of the run."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from milepost import (
    Context,
    Milepost,
    PolicyDenied,
    QualityFailed,
    Refused,
    Repeat,
    Retry,
    RunState,
    Saga,
    Then,
    optional,
)
from milepost.consumers.judging import judged
from milepost.testing import open_kit
from pydantic import BaseModel

from tests.support.kitshop import NOWHERE


class Order(BaseModel):
    id: str


class TextTooLong(Exception):
    """Of a library."""


@pytest.mark.parametrize(
    ("error", "state", "code", "calls", "verdict"),
    [
        (ConnectionRefusedError(), RunState.SUCCEEDED, None, 2, "not_sent"),
        (QualityFailed("TOO_SHORT", "12 characters"), RunState.SUCCEEDED, "TOO_SHORT", 1, "quality"),
        (TextTooLong(), RunState.SUCCEEDED, "TOO_LONG", 1, "quality"),
        (PolicyDenied("FORBIDDEN", "by rule 7"), RunState.FAILED, "FORBIDDEN", 1, "policy"),
    ],
)
async def test_each_kind(
    error: Exception, state: RunState, code: str | None, calls: int, verdict: str
) -> None:
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id)
    made: list[int] = []

    @saga.step(
        repeat=Repeat.SAFE, retry=Retry(attempts=3, first=timedelta(milliseconds=1)), on_failure=Then.FAIL
    )
    async def work(ctx: Context[Order]) -> None:
        made.append(ctx.attempt)
        if ctx.attempt == 1:
            raise error

    saga.flow(optional(work))
    service = Milepost("kinds", sagas=[saga], settings=NOWHERE)
    service.classify(TextTooLong, "quality", "TOO_LONG")
    async with open_kit(service) as kit:
        run = await kit.start(saga, Order(id="o-1"))
        await kit.until(run, state)
        async with kit._opened.database.pool.acquire() as connection:
            step = await connection.fetchrow("SELECT state, code FROM milepost.step WHERE name = 'work'")
            told = await connection.fetchval("SELECT data FROM milepost.history WHERE event = 'step.failed'")
            row = await connection.fetchrow("SELECT cause, code FROM milepost.run")
    assert step is not None and row is not None
    assert (len(made), json.loads(told)["verdict"]) == (calls, verdict)
    assert step["code"] == code
    assert tuple(row) == (("FORBIDDEN", "FORBIDDEN") if state is RunState.FAILED else (None, None))


async def test_a_step_in_doubt_whose_work_is_not_good_enough_is_not_asked_for_ever() -> None:
    """Its settling repeat is the same call under the same key: nothing new would come of another one."""
    saga = Saga("order", version=1, input=Order, key=lambda order: order.id)
    made: list[str] = []

    @saga.step(repeat=Repeat.SAFE, retry=Retry(attempts=2, first=timedelta(milliseconds=1)))
    async def work(ctx: Context[Order]) -> Order:
        made.append(ctx.idempotency_key)
        if len(made) == 1:
            raise RuntimeError("nobody knows")
        raise QualityFailed("TOO_SHORT")

    @work.undo
    async def undo(ctx: Context[Order], done: Order) -> None:
        made.append("undone")

    saga.flow(work)
    async with open_kit(Milepost("kinds", sagas=[saga], settings=NOWHERE)) as kit:
        run = await kit.start(saga, Order(id="o-1"))
        await kit.until(run, RunState.FAILED)
        async with kit._opened.database.pool.acquire() as connection:
            step = await connection.fetchrow(
                "SELECT state, code, doubt FROM milepost.step WHERE name = 'work'"
            )
    assert step is not None and tuple(step) == ("FAILED", "TOO_SHORT", False)
    assert len(made) == 3 and len(set(made)) == 1, "twice, and once to settle it"


@pytest.mark.parametrize("kind", [QualityFailed, PolicyDenied])
def test_a_consumers_event_is_parked_at_once(kind: type[Refused]) -> None:
    judgement = judged(kind("NO", "because"), {})
    assert (judgement.again, judgement.code) == (False, "NO")
