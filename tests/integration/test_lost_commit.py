"""Interleaving 15: the answer to a COMMIT is lost. What was stored is read again by fence, never done twice."""

from __future__ import annotations

from uuid import UUID

import asyncpg
from milepost import Context, Repeat, Saga, Transaction
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.proxy import Proxy, proxied
from tests.support.waiting import until
from tests.support.workers import Hand, worker_on


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int


calls: list[str] = []


def saga(proxy: Proxy, lose_in: str) -> Saga[Order]:
    """Three steps; the answer to what follows step `lose_in` is lost."""
    made = Saga("lost", version=1, input=Order, key=lambda order: order.id)

    def called(name: str, marker: bytes) -> None:
        calls.append(name)
        if name == lose_in and calls.count(name) == 1:
            proxy.lose(marker)

    @made.step(repeat=Repeat.NEVER)
    async def first(ctx: Context[Order]) -> Number:
        called("first", b"step.completed")
        return Number(value=1)

    @made.tx_step()
    async def booked(ctx: Context[Order], tx: Transaction) -> None:
        called("booked", b"COMMIT;")
        await tx.connection.execute("INSERT INTO ledger VALUES ('booked')")

    @made.step(repeat=Repeat.NEVER)
    async def last(ctx: Context[Order]) -> None:
        called("last", b"run.completed")

    made.flow(first, booked, last)
    return made


async def work(hand: Hand, run: UUID, step: str) -> None:
    """Announce a step until the claim's answer has been seen, as the broker's redelivery does."""

    async def taken() -> bool:
        try:
            await hand.take(run, "lost", step)
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
            return False
        return True

    await until(taken, within=10, what="the claim")


async def check(database_url: str, lose_in: str) -> None:
    """Run the saga to its end with one lost answer, and look at what happened."""
    calls.clear()
    async with proxied(database_url) as (proxy, through):
        order = saga(proxy, lose_in)
        async with rig(database_url, order) as it:
            await it.value("CREATE TABLE ledger (what text)")
            run = await it.start(order, Order(id="o-1"))
            async with worker_on(through, it.service) as hand:
                if lose_in == "claim":
                    proxy.lose(b"step.started")
                await work(hand, run.id, "first")

                async def ended() -> bool:
                    return (await it.states(run.id))[""] == "SUCCEEDED"

                await until(ended, within=15, what="the run's end")
            assert proxy.lost == 1, "the fault did not happen"
            assert calls == ["first", "booked", "last"], "a lost answer repeats nothing"
            assert await it.value("SELECT count(*) FROM ledger") == 1
            history = await it.history(run.id)
            assert history.count("step.completed") == 3
            assert "step.late_result" not in history


async def test_the_answer_to_a_finish_is_lost(database_url: str) -> None:
    await check(database_url, "first")


async def test_the_answer_to_a_transactional_steps_commit_is_lost(database_url: str) -> None:
    await check(database_url, "booked")


async def test_the_answer_to_the_last_finish_is_lost(database_url: str) -> None:
    await check(database_url, "last")


async def test_the_answer_to_a_claim_is_lost(database_url: str) -> None:
    await check(database_url, "claim")
