"""Looking at the items of a fan-out: from a program, and at the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from milepost import (
    Context,
    FanOutItem,
    ItemState,
    Refused,
    Repeat,
    Retry,
    RunState,
    Saga,
    StateError,
    UsageError,
)
from pydantic import BaseModel

from tests.support.console import say, spoken
from tests.support.kitshop import opened


class Batch(BaseModel):
    """Input of a run."""

    name: str


class Item(BaseModel):
    """Input of an item."""

    name: str
    n: int


item = Saga("kit-item", version=1, input=Item, key=lambda given: given.name)


@item.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
async def do(ctx: Context[Item]) -> None:
    if ctx.input.n % 3 == 0:
        raise Refused("THIRD", "each third one")


item.flow(do)
batch = Saga("kit-batch", version=1, input=Batch, key=lambda given: given.name)


async def items(ctx: Context[Batch]) -> AsyncIterator[Item]:
    """List seven, or none."""
    for n in range(0 if ctx.input.name == "none" else 7):
        yield Item(name=f"{ctx.input.name}-{n}", n=n)


spread = batch.each("spread", item, items=items, min_success=0.5)
batch.flow(spread)


async def test_a_program_reads_page_by_page() -> None:
    async with opened(batch, item) as (kit, _, service):
        run = await kit.start(batch, Batch(name="b"))
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)
        async with service.transaction() as tx:
            first = await service.fanout_items(tx, run, spread, limit=4)
            second = await service.fanout_items(tx, run, spread, after=first[-1].number, limit=4)
            assert await service.fanout_items(tx, run, spread, after=6) == []
            failed = await service.fanout_items(tx, run, spread, state=ItemState.FAILED)
            well = await service.fanout_items(tx, run, spread, state=ItemState.SUCCEEDED, after=1)
            assert [[one.number for one in page] for page in (first, second)] == [[0, 1, 2, 3], [4, 5, 6]]
            assert [one.number for one in failed] == [0, 3, 6]
            assert [one.number for one in well] == [2, 4, 5]
            assert failed[1] == FanOutItem(
                number=3,
                key="b-3",
                input={"name": "b-3", "n": 3},
                state=ItemState.FAILED,
                attempt=1,
                run=failed[1].run,
                code="THIRD",
                message="kit-item/b-3 has ended as FAILED: do: each third one",
            )
            with pytest.raises(UsageError, match="MP395"):
                await service.fanout_items(tx, run, spread, limit=0)
            with pytest.raises(StateError, match="MP396"):
                await service.fanout_items(tx, run, spread, iteration="2")


async def test_the_command_line_lists_them_and_says_how_far_they_are() -> None:
    async with opened(batch, item) as (kit, _, _):
        run = await kit.start(batch, Batch(name="b"))
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)
        url = str(kit._opened.settings.database_url)
        failed = await say(url, "runs", "items", "kit-batch/b", "spread", "--state", "failed")
        assert [(line["number"], line["key"], line["code"]) for line in failed.lines] == [
            (n, f"b-{n}", "THIRD") for n in (0, 3, 6)
        ]
        rest = await say(url, "runs", "items", "kit-batch/b", "spread", "--after", "3", "--limit", "2")
        assert [line["number"] for line in rest.lines] == [4, 5]
        assert (await say(url, "runs", "items", "kit-batch/b", "spread", "--state", "no")).code == 2
        gone = await say(url, "runs", "items", "kit-batch/b", "other")
        assert (gone.code, "MP647" in gone.errors) == (3, True)
        (shown,) = (await say(url, "runs", "show", "kit-batch/b")).lines
        assert shown["steps"][0]["items"] == {"total": 7, "succeeded": 4, "failed": 3, "started": 0}
        assert "7/7 done, 3 failed" in await spoken(url, "runs", "show", "kit-batch/b")
        listed = await spoken(url, "runs", "items", "kit-batch/b", "spread", "--state", "FAILED")
        assert "b-3" in listed and "b-4" not in listed
        assert "PARTIALLY_SUCCEEDED" in await spoken(url, "runs", "list", "--state", "PARTIALLY_SUCCEEDED")


async def test_a_list_without_items_is_a_list() -> None:
    async with opened(batch, item) as (kit, _, service):
        run = await kit.start(batch, Batch(name="none"))
        await kit.until(run, RunState.SUCCEEDED)
        async with service.transaction() as tx:
            assert await service.fanout_items(tx, run, spread, state=ItemState.FAILED) == []
        url = str(kit._opened.settings.database_url)
        assert "no such items" in await spoken(url, "runs", "items", "kit-batch/none", "spread")
        (shown,) = (await say(url, "runs", "show", "kit-batch/none")).lines
        assert shown["steps"][0]["items"] == {"total": 0, "succeeded": 0, "failed": 0, "started": 0}
