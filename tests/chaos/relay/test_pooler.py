"""Two relays behind a transaction-mode pooler: one leads at a time, and a killed one is followed within its lease."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from milepost.outbox.log import outbox_state

from tests.support.outbox import (
    Noted,
    RelayProcess,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relay_processes,
    until_leads,
    until_sent,
)
from tests.support.pooler import pooled
from tests.support.waiting import until

ENV = {"MILEPOST_POOLER": "transaction", "MILEPOST_LEASE": "2s"}
KILLS = 5 if os.environ.get("MILEPOST_CHAOS") == "long" else 1


async def test_two_relays_behind_a_pooler(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.pooled"
    await make_topics(kafka, topic)
    enough, ids = asyncio.Event(), []

    async with pooled(database_url) as url, connected(database_url, 2) as (watch, writer):

        async def write() -> None:
            for n in itertools.count():
                if enough.is_set():
                    return
                ids.extend(await publish_noted(writer, topic, [Noted(key=f"k{n % 5}", n=n)]))
                await asyncio.sleep(0.002)

        async with relay_processes(url, kafka, 2, **ENV) as processes:
            writing = asyncio.create_task(write())
            for _ in range(KILLS):
                leader = await until_leads(watch, processes, within=60)
                await rotation(watch)
                before = len(ids)
                await until(partial(has_grown, ids, before + 50), within=30, what="more rows")
                state = await outbox_state(watch)
                assert leader.alive and state.owner == leader.owner, "rotation ends no lease"
                await leader.end(signal.SIGKILL)
                killed = time.monotonic()
                await until(
                    partial(past, watch, state.epoch), within=30, every=0.02, what="the standby to lead"
                )
                assert time.monotonic() - killed < 2.0 + 3.0, (
                    "within the lease, and a look or two on a busy machine"
                )
                processes.append(await RelayProcess(url, kafka, **ENV).start())
            enough.set()
            await writing
            await until_sent(watch, within=60)
        terms = await watch.fetch(
            "SELECT epoch, min(at) AS first, max(at) AS last FROM milepost.outbox_position"
            " GROUP BY epoch ORDER BY epoch"
        )
        assert all(one["last"] < two["first"] for one, two in itertools.pairwise(terms)), (
            "never two at a time"
        )
    found = await arrived(kafka, topic)
    assert set(found.ids()) == set(ids)
    assert found.order() == {f"k{n}".encode(): ids[n::5] for n in range(5)}
    assert found.copies_differ() == []


def has_grown(ids: list[UUID], size: int) -> bool:
    """Whether there are so many by now."""
    return len(ids) >= size


async def rotation(watch: asyncpg.Connection[Any]) -> None:
    """Wait until the pooler has replaced all its connections to the server."""
    known = await backends_of(watch)

    async def rotated() -> bool:
        return not known & await backends_of(watch)

    await until(rotated, within=30, every=0.2, what="all server connections to be replaced")


async def backends_of(watch: asyncpg.Connection[Any]) -> set[int]:
    """The server connections of the relays."""
    rows = await watch.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query LIKE '%outbox_position%'"
    )
    return {row["pid"] for row in rows}


async def past(watch: asyncpg.Connection[Any], epoch: int) -> bool:
    """Whether somebody leads under a later epoch."""
    state = await outbox_state(watch)
    return state.epoch > epoch and state.owner is not None
