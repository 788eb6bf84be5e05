"""What the kit promises about itself: clear refusals, and timelines where a test waits in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost import (
    Event,
    Milepost,
    RunRef,
    RunState,
    StepState,
    UsageError,
)
from milepost.schemas.ids import SystemIds
from milepost.testing import Kit, open_kit
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.kitopened import ORDER, kit, service
from tests.support.kitsagas import safe_act
from tests.support.kitshop import (
    NOWHERE,
    Bank,
    Companies,
    charge_card,
    close_order,
    delivered,
    make_tables,
    order,
    reserve_stock,
    ship,
)

__all__ = ["kit", "service"]


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
        "step.completed          reserve_stock, try 1",
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
