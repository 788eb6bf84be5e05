"""[ok, fail, ok, ok] with a process that is killed after each; MILEPOST_CHAOS=long, for it starts many processes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.support.inbox import committed
from tests.support.letters_world import World, opened_world
from tests.support.process import served
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    os.environ.get("MILEPOST_CHAOS") != "long",
    reason="tests/integration/consumer/test_positions.py is the short form",
)


@pytest.fixture
async def world(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[World]:
    async with opened_world(kafka, topic_prefix, database_url) as world:
        yield world


@pytest.mark.parametrize("batch", [1, 500])
async def test_ok_fail_ok_ok_comes_out_the_same_wherever_the_process_is_killed(
    world: World, batch: int
) -> None:
    """The position passes the failed event only together with its letter: killed after each event, and at the end."""
    world.env["LETTERS_BATCH"] = str(batch)
    await world.broken("o-1")
    for order in ("o-0", "o-1", "o-2", "o-3"):
        async with served(world.env, "consumers") as (process,):
            await world.send(order)
            seen = "SELECT count(*) > 0 FROM run WHERE text = $1"
            await until(partial(world.effects.value, seen, order), within=60)
            process.send(signal.SIGKILL)
            await process.wait()
    async with served(world.env, "consumers"):
        await world.letters(1)
        await world.applied("o-0", "o-2", "o-3")

        async def behind_all() -> bool:
            return (await committed(world.kafka, f"{world.prefix}-books")).get(0) == 4

        await until(behind_all, within=60, what="the committed offset")
    assert await world.effects.value("SELECT code FROM milepost.dead_letter") in {
        "HANDLER_FAILED",
        "PROCESS_DIED",
    }
