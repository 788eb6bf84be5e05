"""The kit's clock, and the service that it takes: put back as it was, nothing left behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from milepost import (
    Context,
    Milepost,
    QualityFailed,
    Repeat,
    Retry,
    RunState,
    Saga,
    StepState,
    Transaction,
    UsageError,
    loop,
    publish,
)
from milepost.schemas.ids import SystemClock
from milepost.testing import Kit, open_kit
from milepost.testing.timeline import timelines
from pydantic import BaseModel
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import async_sessionmaker

from tests.support.kitopened import ORDER, kit, service
from tests.support.kitshop import (
    NOWHERE,
    Companies,
    OrderCharged,
    OrderPlaced,
    Shipment,
    closed,
    delivered,
    make_tables,
    order,
    refund,
    rows,
    ship,
    shop,
)

__all__ = ["kit", "service"]


async def test_the_clock_stands_still_and_moves_by_what_it_is_told(service: Milepost, kit: Kit) -> None:
    begun = service.clock.now()
    assert abs(begun - SystemClock().now()) < timedelta(minutes=2)
    run = await kit.start(order, ORDER)
    await kit.until_step(run, delivered, StepState.WAITING)
    assert service.clock.now() == begun
    await kit.advance(timedelta(hours=5))
    assert service.clock.now() == begun + timedelta(hours=5)
    async with service.transaction() as tx:
        there = (await tx.session.execute(select(func.milepost.clock()))).scalar_one()
    assert there == begun + timedelta(hours=5)


async def test_the_clock_may_go_years_ahead(kit: Kit) -> None:
    await kit.advance(timedelta(days=3000))
    run = await kit.start(order, ORDER)
    await kit.until_step(run, delivered, StepState.WAITING)
    await kit.advance(timedelta(days=3))
    await kit.until(run, RunState.COMPENSATED)


async def test_delays_of_retries_are_skipped_by_until_and_kept_by_advance(
    service: Milepost, kit: Kit
) -> None:
    kit.lose_reply(ship, times=2)  # half of 1 s, then half of 2 s
    run = await kit.start(order, ORDER)
    begun = service.clock.now()
    await kit.until_step(run, ship, StepState.RETRY_PENDING)
    assert service.clock.now() == begun
    await kit.advance(timedelta(seconds=1.4))
    with pytest.raises(AssertionError, match="ship of order/o-1 is RETRY_PENDING"):
        await kit.result(run, ship)
    await kit.until_step(run, delivered, StepState.WAITING)
    assert service.clock.now() == begun + timedelta(seconds=1.5)


async def test_the_users_own_sessions_are_on_the_kits_database(service: Milepost, kit: Kit) -> None:
    assert service.engine is not None
    sessions = async_sessionmaker(service.engine, expire_on_commit=False)
    async with sessions.begin() as session:
        await session.execute(insert(closed).values(order_id="by hand"))
        await publish(session, OrderPlaced(order_id="o-1"))
        run = await service.start(session, order, ORDER)
    assert await rows(service, closed) == ["by hand"]
    await kit.until_step(run, delivered, StepState.WAITING)
    assert await kit.published(OrderPlaced) == [OrderPlaced(order_id="o-1")]


async def test_the_service_is_put_back_and_the_database_is_gone() -> None:
    service = shop()
    clock, dice, engine = service.clock, service.randomness, service.engine
    assert engine is not None
    async with open_kit(service, prepare=make_tables):
        url = service.settings.dsn
        assert service.settings != NOWHERE
        assert await rows(service, closed) == []
    assert (service.settings, service.clock, service.randomness, service.engine) == (
        NOWHERE,
        clock,
        dice,
        engine,
    )
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(url)
    with pytest.raises(OSError):
        async with engine.connect():
            pass


async def test_kits_know_nothing_of_each_other(service: Milepost) -> None:
    ids = set()
    for _ in range(2):
        async with open_kit(service, prepare=make_tables) as kit:
            Companies().provide(kit)
            run = await kit.start(order, ORDER)
            await kit.until_step(run, delivered, StepState.WAITING)
            assert await kit.published(OrderCharged) == [OrderCharged(order_id="o-1")]
            ids.add(run.id)
    assert len(ids) == 2


async def test_when_the_tables_cannot_be_made_nothing_is_left() -> None:
    service = shop()
    urls = []

    async def wrong(tx: Transaction) -> None:
        urls.append(service.settings.dsn)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with open_kit(service, prepare=wrong):
            pass
    assert service.settings is NOWHERE
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(urls[0])


class Key(BaseModel):
    """Input of the saga below."""

    id: str


plain = Saga("plain", version=1, input=Key, key=lambda given: given.id)


@plain.step(repeat=Repeat.SAFE)
async def fetch(ctx: Context[Key]) -> Shipment:
    return Shipment(tracking_id=ctx.input.id)


@plain.tx_step()
async def note(ctx: Context[Key], tx: Transaction) -> None:
    await tx.publish(OrderPlaced(order_id=ctx.result(fetch).tracking_id))


plain.flow(fetch, note)


rounds = Saga("rounds", version=1, input=Key, key=lambda k: k.id)


@rounds.step(repeat=Repeat.SAFE)
async def dull(ctx: Context[Key]) -> None:
    raise QualityFailed("DULL")


rounds.flow(loop(dull, until=lambda v: True, at_most=2, name="again"))


async def test_the_timeline_tells_rounds_from_tries() -> None:
    bare = Milepost("bare", sagas=[rounds], settings=NOWHERE)
    async with open_kit(bare) as kit:
        run = await kit.start(rounds, Key(id="k"))
        await kit.until(run, RunState.FAILED)
        report = await timelines(bare.settings.dsn)
    for part in (
        "    dull#2   FAILED     1 try",
        "step.started    dull#1, try 1",
        "step.started    dull#2, try 1",
        "    again#2  FAILED       ",
    ):
        assert part in report


async def test_a_service_without_an_engine() -> None:
    service = Milepost("plain", sagas=[plain], settings=NOWHERE)
    seen = []

    @service.consumer("plain-reader").on(OrderPlaced)
    async def read(event: OrderPlaced, tx: Transaction) -> None:
        seen.append((event.order_id, tx.connection.is_in_transaction(), tx.envelope.delivery))

    async with open_kit(service) as kit:
        kit.crash(note, when="after_effect")
        run = await kit.start(plain, Key(id="a"))
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.published(OrderPlaced) == [OrderPlaced(order_id="a")]
        await kit.advance(timedelta(0))
        assert seen == [("a", True, 1)]


async def test_a_consumer_that_fails_parks_its_event_without_waiting() -> None:
    service = Milepost("failing", settings=NOWHERE)
    deliveries = []

    slowly = Retry(attempts=3, first=timedelta(hours=1), cap=timedelta(hours=1), within=None)

    @service.consumer("failing-reader", retry=slowly).on(OrderPlaced)
    async def read(event: OrderPlaced, tx: Transaction) -> None:
        deliveries.append(tx.envelope.delivery)
        raise ZeroDivisionError("cannot book")

    async with open_kit(service) as kit:
        async with asyncio.timeout(30):
            await kit.deliver(OrderPlaced(order_id="a"), copies=2)
        assert deliveries[-3:] == [1, 2, 3]
        tried = len(deliveries)
        await kit.deliver(OrderPlaced(order_id="b"))
        assert len(deliveries) > tried
        report = await timelines(service.settings.dsn)
        assert report.count("HANDLER_FAILED  ZeroDivisionError: cannot book") == 2


async def test_undo_of_a_namesake_in_another_saga_is_told_apart(kit: Kit) -> None:
    twin = Saga("twin", version=1, input=Key, key=lambda given: given.id)

    @twin.step(repeat=Repeat.SAFE)
    async def charge_card(ctx: Context[Key]) -> None:
        pass

    @charge_card.undo
    async def refund_twin(ctx: Context[Key], done: None) -> None:
        pass

    twin.flow(charge_card)
    kit.fail(refund, code="X", times=0)
    with pytest.raises(UsageError, match="MP350"):
        kit.fail(refund_twin, code="X")
    with pytest.raises(UsageError, match="MP350"):
        kit.fail(charge_card, code="X")
