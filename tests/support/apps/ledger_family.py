"""Sagas of the ledger that start others: a family has two members at work side by side, a crowd has as many as come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from milepost import ChildRun, FanOut, Repeat, Saga, Transaction, all_of

from tests.support.apps.ledger import FAST, TWICE, Ctx, Done, Job, book_effect, take_step

member = Saga("member", version=1, input=Job, key=lambda job: job.name)


@member.step(repeat=Repeat.SAFE, retry=FAST)
async def make(ctx: Ctx) -> Done:
    return await take_step(ctx, "make")


@make.undo
async def unmake(ctx: Ctx, done: Done) -> None:
    await take_step(ctx, "unmake")


@member.step(repeat=Repeat.SAFE, retry=TWICE, no_undo="the last")
async def polish(ctx: Ctx) -> Done:
    return await take_step(ctx, "polish")


member.flow(make, polish)

family = Saga("family", version=1, input=Job, key=lambda job: job.name)


@family.step(repeat=Repeat.SAFE, retry=FAST)
async def prepare(ctx: Ctx) -> Done:
    return await take_step(ctx, "prepare")


@prepare.undo
async def unprepare(ctx: Ctx, done: Done) -> None:
    await take_step(ctx, "unprepare")


def _child(side: str) -> Any:
    node = family.child(side, member, input=lambda v: Job(name=f"{v.input.name}-{side}"))

    async def back(ctx: Ctx, done: ChildRun) -> None:
        await take_step(ctx, f"take back {side}")

    back.__name__ = f"take_back_{side}"
    node.undo(back)
    return node


@family.tx_step(retry=FAST)
async def close_up(ctx: Ctx, tx: Transaction) -> None:
    await book_effect(ctx, tx, "close")


family.flow(prepare, all_of(_child("left"), _child("right")), close_up)

#: Members of a crowd, and the share of them that has to succeed.
CROWD, ENOUGH = 5, 0.6

crowd = Saga("crowd", version=1, input=Job, key=lambda job: job.name)


@crowd.step(repeat=Repeat.SAFE, retry=FAST)
async def gather(ctx: Ctx) -> Done:
    return await take_step(ctx, "gather")


@gather.undo
async def scatter(ctx: Ctx, done: Done) -> None:
    await take_step(ctx, "scatter")


async def members(ctx: Ctx) -> AsyncIterator[Job]:
    """Name them; it may be asked again, so it leaves nothing in the ledger."""
    for n in range(CROWD):
        yield Job(name=f"{ctx.input.name}-{n}")


work = crowd.each("work", member, items=members, concurrency=2, min_success=ENOUGH, retry=FAST)


@work.undo
async def call_off(ctx: Ctx, done: FanOut) -> None:
    await take_step(ctx, f"call off {done.succeeded}")


@crowd.tx_step(retry=FAST)
async def disband(ctx: Ctx, tx: Transaction) -> None:
    await book_effect(ctx, tx, "disband")


crowd.flow(gather, work, disband)

FAMILY = [family, member, crowd]
