"""Sagas of the ledger that wait for persons: a payout that two approve, and refunds that wait for somebody's yes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from milepost import Repeat, Risk, Saga, Then, all_of
from pydantic import BaseModel

from tests.support.apps.ledger import TWICE, Ctx, Done, Job, take_step


class Payout(BaseModel):
    """What is approved."""

    to: str
    number: int


def _step(saga: Saga[Job], name: str, undo: str = "", **options: Any) -> Any:
    @saga.step(repeat=Repeat.SAFE, name=name, retry=TWICE)
    async def act(ctx: Ctx) -> Done:
        return await take_step(ctx, name)

    async def back(ctx: Ctx, done: Done) -> None:
        await take_step(ctx, undo)

    if undo:
        back.__name__ = undo
        attach: Any = act.undo
        attach(retry=TWICE, **options)(back)
    return act


payout = Saga("payout", version=1, input=Job, key=lambda job: job.name)
_prepare = _step(payout, "prepare", undo="unprepare")
_ok = payout.approval(
    "ok",
    roles=frozenset({"finance"}),
    expires=timedelta(hours=1),
    on_reject=Then.COMPENSATE,
    quorum=2,
    params=lambda v: Payout(to=v.input.name, number=v.result(_prepare).number),
)


@payout.step(repeat=Repeat.SAFE, retry=TWICE, irreversible=True)
async def pay_out(ctx: Ctx) -> Done:
    return await take_step(ctx, "pay out")


payout.flow(_prepare, _ok, pay_out)


def _returns(name: str, risk: Risk, *, detached: bool) -> Saga[Job]:
    """Reserve and label side by side, charge, ship; the refund is risky."""
    saga = Saga(name, version=1, input=Job, key=lambda job: job.name)
    reserve, label = _step(saga, "reserve", undo="release"), _step(saga, "label", undo="unlabel")
    charge = _step(saga, "charge", undo="refund", risk=risk, detached=detached)
    saga.flow(all_of(reserve, label), charge, _step(saga, "ship"))
    return saga


returns = _returns("returns", Risk.HIGH, detached=True)
strict = _returns("strict", Risk.CRITICAL, detached=False)

APPROVALS = [payout, returns, strict]
