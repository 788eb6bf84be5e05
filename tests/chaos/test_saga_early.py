"""A process that both relays and works begins an announced step before Kafka has its message; Kafka decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg
import pytest
from milepost.devstack.kafka import Kafka
from milepost.outbox.log import outbox_state

from tests.support.apps.ledger import ask, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import served
from tests.support.waiting import until


@pytest.fixture
async def broker() -> AsyncIterator[Kafka]:
    """A broker that this test may freeze."""
    server = Kafka()
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        server.thaw()
        await asyncio.to_thread(server.close)


async def all_sent(stage: Stage) -> None:
    """Wait until the outbox has nothing left."""

    async def sent() -> bool:
        return await unsent(stage) == 0

    await until(sent, within=60, what="everything to be sent")


async def unsent(stage: Stage) -> int:
    """Rows that are still to be sent."""
    async with stage.pool.acquire() as connection:
        return (await outbox_state(cast("asyncpg.Connection[Any]", connection))).lag


async def test_a_run_goes_through_although_the_broker_is_frozen(
    database_url: str, broker: Kafka, topic_prefix: str
) -> None:
    async with staged(database_url, broker.bootstrap, topic_prefix) as stage:
        async with served(stage.env(MILEPOST_LEASE="30s", MILEPOST_NUDGE="60s")):
            assert await stage.resting([await stage.start(safe, "first")], within=60) == {"SUCCEEDED": 1}
            await all_sent(stage)
            broker.freeze()
            run = await stage.start(safe, "second")
            assert await stage.resting([run], within=20) == {"SUCCEEDED": 1}
            broker.thaw()
            await all_sent(stage)
            # Whatever was announced before this run's end has been read when another one's last message has.
            last = await stage.start(safe, "third")
            assert await stage.resting([last], within=60) == {"SUCCEEDED": 1}
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        assert await stage.calls(run, "act") == 1, "its record came later, and was let go"


async def test_a_kill_before_the_announcement_is_sent(
    database_url: str, broker: Kafka, topic_prefix: str
) -> None:
    async with staged(database_url, broker.bootstrap, topic_prefix) as stage:
        env = stage.env(MILEPOST_LEASE="3s")
        async with served(env) as (process,):
            assert await stage.resting([await stage.start(safe, "first")], within=60) == {"SUCCEEDED": 1}
            await all_sent(stage)
            broker.freeze()
            await stage.fault("killed", "act", "after", "kill")
            run = await stage.start(ask, "killed")
            await until(
                lambda: process.ended, within=20, what="the process to die in the step it claimed early"
            )
            assert await unsent(stage) > 0, "the announcement is still to be sent"
        broker.thaw()
        async with served(env):
            assert await stage.resting([run], within=60) == {"SUCCEEDED": 1}, await stage.story(run)
            await all_sent(stage)
        assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        assert await stage.calls(run, "act") == 1, "what became of it was asked, and nothing repeated"
