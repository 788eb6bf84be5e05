"""What the kit promises about itself: clear refusals, timelines, a service put back as it was, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost import (
    Context,
    Event,
    Milepost,
    Repeat,
    Retry,
    RunRef,
    RunState,
    Saga,
    StepState,
    Transaction,
    UsageError,
    publish,
)
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.testing import Kit, open_kit
from milepost.testing.timeline import timelines
from pydantic import BaseModel
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from tests.support.kitsagas import safe_act
from tests.support.kitshop import (
    NOWHERE,
    Bank,
    Companies,
    OrderCharged,
    OrderPlaced,
    PlaceOrder,
    Shipment,
    charge_card,
    close_order,
    closed,
    delivered,
    make_tables,
    order,
    refund,
    reserve_stock,
    rows,
    ship,
    shop,
)

ORDER = PlaceOrder(order_id="o-1")


@pytest.fixture
async def service() -> Milepost:
    """A shop."""
    return shop()


@pytest.fixture
async def kit(service: Milepost) -> AsyncIterator[Kit]:
    """A kit on it with all companies."""
    async with open_kit(service, prepare=make_tables) as kit:
        Companies().provide(kit)
        yield kit


# --- refusals -----------------------------------------------------------------------------------------


class Unread(Event, type="kitshop.unread", topic="nobody-reads-this"):
    """An event without a reader."""


async def test_what_is_not_of_this_service_is_refused(kit: Kit) -> None:
    run = await kit.start(order, ORDER)
    refusals: list[Callable[[], None]] = [
        lambda: kit.fail(safe_act, code="X"),
        lambda: kit.lose_reply(safe_act),
        lambda: kit.crash(safe_act, when="before"),
    ]
    for refused in refusals:
        with pytest.raises(UsageError, match=r"MP350 .*<Step act of safe v1> is no step"):
            refused()
    with pytest.raises(UsageError, match=r"MP350 .*saga order"):
        await kit.until_step(run, safe_act, StepState.RUNNING)
    with pytest.raises(UsageError, match="MP350"):
        await kit.result(run, safe_act)


async def test_a_wait_cannot_fail_or_crash(kit: Kit) -> None:
    refusals: list[Callable[[], None]] = [
        lambda: kit.fail(delivered, code="X"),
        lambda: kit.lose_reply(delivered),
        lambda: kit.crash(delivered, when="before"),
    ]
    for refused in refusals:
        with pytest.raises(UsageError, match=r"MP352 .*delivered"):
            refused()


async def test_an_event_that_nobody_reads_is_refused(kit: Kit) -> None:
    with pytest.raises(UsageError, match=r"MP353 .*'nobody-reads-this'"):
        await kit.deliver(Unread())


async def test_time_does_not_run_backwards(kit: Kit) -> None:
    with pytest.raises(UsageError, match="MP354"):
        await kit.advance(timedelta(seconds=-1))


async def test_a_run_that_does_not_exist_is_refused(kit: Kit) -> None:
    nobody = RunRef(id=SystemIds().new(), tenant="", saga="order", key="o-9")
    for asked in (
        kit.until(nobody, RunState.SUCCEEDED),
        kit.until_step(nobody, ship, StepState.RUNNING),
        kit.result(nobody, ship),
    ):
        with pytest.raises(UsageError, match="MP355 run order/o-9"):
            await asked


async def test_a_client_that_was_not_provided_is_named_at_once(service: Milepost) -> None:
    async with open_kit(service, prepare=make_tables) as kit:
        run = await kit.start(order, ORDER)
        with pytest.raises(UsageError, match=r"MP351 ctx.use\(Warehouse\).*kit.provide\(Warehouse"):
            await kit.until(run, RunState.SUCCEEDED)
        with pytest.raises(UsageError, match="MP351"):
            await kit.advance(timedelta(seconds=1))


async def test_a_service_has_one_kit_at_a_time(service: Milepost, kit: Kit) -> None:
    with pytest.raises(UsageError, match="MP356"):
        async with open_kit(service):
            pass
    run = await kit.start(order, ORDER)
    await kit.until_step(run, delivered, StepState.WAITING)


async def test_an_engine_that_connects_elsewhere_whatever_it_is_told_is_refused(database_url: str) -> None:
    async def always_there() -> asyncpg.Connection[Any]:
        return await asyncpg.connect(database_url)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=always_there)
    stubborn = Milepost("stubborn", engine=engine, settings=NOWHERE)
    with pytest.raises(UsageError, match="MP357"):
        async with open_kit(stubborn):
            pass
    assert stubborn.settings is NOWHERE


# --- what a failing test shows ------------------------------------------------------------------------


async def test_waiting_in_vain_shows_the_timeline(kit: Kit) -> None:
    kit.fail(ship, code="CARRIER_CLOSED")
    run = await kit.start(order, ORDER)
    with pytest.raises(AssertionError) as failed:
        await kit.until(run, RunState.SUCCEEDED, within=timedelta(hours=1))
    text = str(failed.value)
    assert text.startswith("order/o-1 has not been SUCCEEDED, and it is over")
    assert "order/o-1  COMPENSATED (cause CARRIER_CLOSED)" in text
    for part in (
        "ship           FAILED       1 try ",
        "CARRIER_CLOSED: refused by the test (fail)",
        "refund         COMPENSATED  1 try",
        "run.started",
        "step.completed          reserve_stock #1",
        "run.compensated",
    ):
        assert part in text


async def test_waiting_in_vain_ends_after_within(kit: Kit) -> None:
    run = await kit.start(order, ORDER)
    with pytest.raises(AssertionError, match=r"has not been SUCCEEDED within 0.2 s\n\norder/o-1  WAITING"):
        await kit.until(run, RunState.SUCCEEDED, within=timedelta(seconds=0.2))
    with pytest.raises(AssertionError, match=r"close_order of order/o-1 has not been RUNNING within 0.2 s"):
        await kit.until_step(run, close_order, StepState.RUNNING, within=timedelta(seconds=0.2))


async def test_the_result_of_a_step_that_has_none_shows_the_timeline(kit: Kit) -> None:
    run = await kit.start(order, ORDER)
    with pytest.raises(AssertionError, match="ship of order/o-1 has not begun, so it has no result"):
        await kit.result(run, ship)
    with pytest.raises(AssertionError, match=r"reserve_stock of order/o-1 is PENDING[\s\S]*run.started"):
        await kit.result(run, reserve_stock)


async def test_a_step_that_hangs_does_not_hang_the_test(service: Milepost) -> None:
    cancelled = asyncio.Event()

    class Stuck(Bank):
        async def charge(self, reference: str) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return ""

    async with open_kit(service, prepare=make_tables) as kit:
        Companies().provide(kit)
        kit.provide(Bank, Stuck())
        run = await kit.start(order, ORDER)
        with pytest.raises(AssertionError, match=r"has not been SUCCEEDED within 0\.3 s"):
            await kit.until(run, RunState.SUCCEEDED, within=timedelta(seconds=0.3))
        await kit.until_step(run, charge_card, StepState.RUNNING)
        assert not cancelled.is_set()
    assert cancelled.is_set()


# --- clock and determinism ----------------------------------------------------------------------------


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


# --- the service and its surroundings -----------------------------------------------------------------


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
