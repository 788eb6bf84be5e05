"""PostgreSQL is killed again and again while services commit without waiting for the disk.

What such a service loses in a crash is not to be announced: nothing is on the topic that is not in the database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import pytest
from milepost.devstack.postgres import Postgres
from milepost.outbox.publish import publish
from milepost.streams.migrate import migrate

from tests.support.outbox import Noted, arrived, make_topics, relaying, until_sent
from tests.support.waiting import until

CRASHES = 20 if os.environ.get("MILEPOST_CHAOS") == "long" else 3


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that this test may kill."""
    with Postgres(settings={"wal_writer_delay": "10s"}) as server:
        yield server


async def write_until_it_ends(url: str, topic: str, begin: int) -> int:
    """Commit events of one key, waiting for nothing, until the server is gone; returns the next number."""
    n = begin
    with suppress(Exception):  # however the driver says that the server is gone
        connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
        while True:
            async with connection.transaction():
                await publish(connection, Noted(key="k", n=n), topic=topic)
            n += 1
    return n


async def test_nothing_is_sent_that_a_crash_takes_back(
    own_postgres: Postgres, kafka: str, topic_prefix: str
) -> None:
    topic, number = f"{topic_prefix}.crash", 0
    await make_topics(kafka, topic)
    url = own_postgres.create_database("crash")
    await migrate(url)
    async with relaying(url, kafka):
        for _ in range(CRASHES):
            writing = asyncio.create_task(write_until_it_ends(url, topic, number))
            before = len((await arrived(kafka, topic)).ids())

            async def sending(before: int = before) -> bool:
                return len((await arrived(kafka, topic)).ids()) > before + 50

            await until(sending, within=60, every=0.1, what="events on the topic")
            await asyncio.to_thread(own_postgres.kill)
            number = await asyncio.wait_for(writing, 30)
            await asyncio.to_thread(own_postgres.start)
        connection = await asyncpg.connect(url)
        await until_sent(connection, within=90)
        kept = [row["id"] for row in await connection.fetch("SELECT id FROM milepost.outbox ORDER BY seq")]
        await connection.close()
    found = (await arrived(kafka, topic)).ids()
    assert set(found) - set(kept) == set(), "announced, and lost in the crash"
    assert set(kept) - set(found) == set(), "committed, and never sent"
    assert number > len(kept), "no crash took anything back, so that nothing was tested"
