"""Sagas for tests of the kit: one for each `repeat` and one for each way to end a wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from milepost import Absent, Found, Probe, Repeat, Retry, Saga, Step, Then, Transaction, Undo, Wait
from milepost.schemas.options import OnTimeout
from sqlalchemy import insert

from tests.support.kitshop import SETTLE, Ctx, DeliveryReport, PlaceOrder, Shipment, closed


class Elsewhere:
    """A company that counts calls and effects by key; a dedupe makes the second effect of a key none."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.effects: list[str] = []
        self.known: set[str] = set()
        self.asked = 0

    def act(self, key: str, *, dedupe: bool) -> None:
        self.calls.append(key)
        if not (dedupe and key in self.effects):
            self.effects.append(key)

    def called(self, name: str) -> int:
        """How often a step was called."""
        return sum(key.endswith(f":{name}") for key in self.calls)

    def happened(self, name: str) -> int:
        """How often a step had its effect."""
        return sum(key.endswith(f":{name}") for key in self.effects)


def _saga(name: str) -> Saga[PlaceOrder]:
    return Saga(name, version=1, input=PlaceOrder, key=lambda placed: placed.order_id)


def _after(saga: Saga[PlaceOrder]) -> Step[PlaceOrder, Any]:
    @saga.step(repeat=Repeat.SAFE)
    async def after(ctx: Ctx) -> None:
        ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)

    return after


# --- one step of each kind, and a SAFE one after it --------------------------------------------------

safe = _saga("safe")


@safe.step(repeat=Repeat.SAFE, name="act")
async def safe_act(ctx: Ctx) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)
    return Shipment(tracking_id=f"try {ctx.attempt}")


safe.flow(safe_act, _after(safe))

ask = _saga("ask")


@ask.step(repeat=Repeat.ASK_FIRST, name="act")
async def ask_act(ctx: Ctx) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=False)
    return Shipment(tracking_id="called")


@ask_act.probe(settle=SETTLE)
async def ask_probe(ctx: Ctx) -> Probe[Shipment]:
    elsewhere = ctx.use(Elsewhere)
    elsewhere.asked += 1
    return Found(Shipment(tracking_id="found")) if ctx.idempotency_key in elsewhere.effects else Absent()


ask.flow(ask_act, _after(ask))

never = _saga("never")


@never.step(repeat=Repeat.NEVER, name="act")
async def never_act(ctx: Ctx) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=False)
    return Shipment(tracking_id="called")


never.flow(never_act, _after(never))

within = _saga("within")


@within.tx_step(name="act")
async def within_act(ctx: Ctx, tx: Transaction) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)
    await tx.session.execute(insert(closed).values(order_id=ctx.input.order_id))
    return Shipment(tracking_id=f"try {ctx.attempt}")


within.flow(within_act, _after(within))

# --- undo of what is in doubt -------------------------------------------------------------------------

doubtful = _saga("doubtful")


@doubtful.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
async def settled(ctx: Ctx) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)
    return Shipment(tracking_id="learned")


@settled.undo
async def unsettle(ctx: Ctx, done: Shipment) -> None:
    ctx.use(Elsewhere).calls.append(f"undo {done.tracking_id}")


doubtful.flow(settled)

blind = _saga("blind")


@blind.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
async def unseen(ctx: Ctx) -> Shipment:
    ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)
    return Shipment(tracking_id="never learned")


@unseen.undo(blind=True)
async def unsee(ctx: Ctx, done: Shipment | None) -> None:
    ctx.use(Elsewhere).calls.append(f"undo {done}")


blind.flow(unseen)

# --- a wait of each policy ----------------------------------------------------------------------------

TIMEOUT = timedelta(hours=6)


def waiting(
    policy: OnTimeout,
) -> tuple[Saga[PlaceOrder], Wait[PlaceOrder, DeliveryReport], Undo[PlaceOrder]]:
    """Return a saga `begin > arrived > after` whose wait has this policy, the wait, and the undo of `begin`."""
    saga = _saga(f"wait-{policy.value}")

    @saga.step(repeat=Repeat.SAFE)
    async def begin(ctx: Ctx) -> None:
        ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)

    @begin.undo
    async def unbegin(ctx: Ctx, done: None) -> None:
        ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)

    arrived = saga.wait(
        "arrived",
        DeliveryReport,
        match=lambda view: view.input.order_id,
        timeout=TIMEOUT,
        on_timeout=policy,
    )
    if policy is Then.RECONCILE:

        @arrived.probe(give_up=timedelta(hours=3))
        async def ask_for_it(ctx: Ctx) -> Probe[DeliveryReport]:
            elsewhere = ctx.use(Elsewhere)
            elsewhere.asked += 1
            order_id = ctx.input.order_id
            if order_id not in elsewhere.known:
                return Absent()
            return Found(DeliveryReport(order_id="found", tracking_id=order_id))

    @saga.step(repeat=Repeat.SAFE, no_undo="the last one")
    async def after(ctx: Ctx) -> None:
        ctx.use(Elsewhere).act(ctx.idempotency_key, dedupe=True)

    saga.flow(begin, arrived, after)
    return saga, arrived, unbegin
