"""Twelve hostile writers against a relay that is killed again and again: nothing lost, no key out of order.

MILEPOST_CHAOS=long writes and kills more.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any
from uuid import UUID

import asyncpg
from milepost.outbox.position import PAGE_ROWS
from milepost.outbox.publish import publish

from tests.support.outbox import (
    Arrived,
    Noted,
    RelayProcess,
    arrived,
    connected,
    make_topics,
    relay_processes,
    until_leads,
    until_sent,
)
from tests.support.waiting import until

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
WRITERS = 12
KILLS = 50 if LONG else 10
KEYS = [f"key-{n}" for n in range(25)]

#: The order in which transactions committed that held a key's lock: each sees what the one before it committed.
TRUTH = "CREATE TABLE truth (key text, n integer, id uuid NOT NULL, PRIMARY KEY (key, n))"
NOTE = (
    "INSERT INTO truth (key, n, id)"
    " SELECT $1::text, coalesce(max(n), 0) + 1, $2::uuid FROM truth WHERE key = $1"
)


class Writer:
    """Writes until told to stop, in every unpleasant way; repeatable by its seed."""

    def __init__(self, connection: asyncpg.Connection[Any], topic: str, seed: int) -> None:
        self.connection = connection
        self.topic = topic
        self.dice = random.Random(seed)
        self.deadlocks = 0
        self.written = 0

    async def run(self, enough: asyncio.Event) -> None:
        """Write transaction after transaction."""
        while not enough.is_set():
            try:
                async with self.connection.transaction():
                    await self._transaction()
            except asyncpg.DeadlockDetectedError:
                self.deadlocks += 1
            except ZeroDivisionError:
                pass

    async def _transaction(self) -> None:
        if self.dice.random() < 0.3:  # takes its number long before it inserts
            await self.connection.execute("SELECT pg_current_xact_id()")
            await self.connection.execute("SELECT pg_sleep($1)", self.dice.random() * 0.05)
        keys = self.dice.sample(KEYS, self.dice.randint(1, 4))  # several calls: locked in any order
        for key in keys:
            count = self.dice.choice([1, 1, 1, 5])
            events = [Noted(key=key, text="x" * self.dice.randint(0, 400)) for _ in range(count)]
            for event_id in await publish(self.connection, *events, topic=self.topic, lock_key=True):
                await self.connection.execute(NOTE, key, event_id)
                self.written += 1
        if self.dice.random() < 0.2:
            raise ZeroDivisionError
        if self.dice.random() < 0.1:
            await self.connection.execute("SELECT pg_sleep($1)", self.dice.random() * 0.03)


async def hold_open(connection: asyncpg.Connection[Any], topic: str, key: str, seconds: float) -> None:
    """One transaction that publishes first and commits seconds later."""
    async with connection.transaction():
        (event_id,) = await publish(connection, Noted(key=key), topic=topic, lock_key=True)
        await connection.execute(NOTE, key, event_id)
        await connection.execute("SELECT pg_sleep($1)", seconds)


async def kill_leaders(
    url: str, kafka: str, watch: asyncpg.Connection[Any], processes: list[RelayProcess], times: int
) -> None:
    """Kill whoever leads once it has sent something, and start another in its place."""
    dice = random.Random(1)
    for _ in range(times):
        leader = await until_leads(watch, processes, within=60)
        epoch, written = await newest(watch)

        async def has_sent(epoch: int = epoch, enough: int = written + dice.randint(2, 12)) -> bool:
            return (await newest(watch)) >= (epoch, enough)

        await until(has_sent, within=60, every=0.01, what="the leader to send")
        await leader.end(signal.SIGKILL)
        processes.append(await RelayProcess(url, kafka, TAKEN="0.5").start())


async def newest(watch: asyncpg.Connection[Any]) -> tuple[int, int]:
    row = await watch.fetchrow(
        "SELECT epoch, n FROM milepost.outbox_position ORDER BY epoch DESC, n DESC LIMIT 1"
    )
    return (row["epoch"], row["n"]) if row is not None else (0, 0)


def judge(found: Arrived, truth: dict[str, list[UUID]], kills: int) -> dict[str, int]:
    """Return what is wrong: lost, strange and misordered events, and repetitions beyond a page per kill."""
    committed = {event for events in truth.values() for event in events}
    ids = found.ids()
    order = found.order()
    return {
        "lost": len(committed - set(ids)),
        "never committed": len(set(ids) - committed),
        "misordered keys": sum(order.get(key.encode(), []) != events for key, events in truth.items()),
        "copies that differ": len(found.copies_differ()),
        "too many repetitions": max(0, len(ids) - len(set(ids)) - kills * PAGE_ROWS),
    }


async def test_killed_ten_times_among_hostile_writers(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.hostile"
    await make_topics(kafka, topic, partitions=4)
    enough = asyncio.Event()
    async with connected(database_url, WRITERS + 2) as (watch, holder, *connections):
        await watch.execute(TRUTH)
        writers = [Writer(connection, topic, seed) for seed, connection in enumerate(connections)]
        async with relay_processes(database_url, kafka, 2, TAKEN="0.5") as processes:
            writing = [asyncio.create_task(writer.run(enough)) for writer in writers]
            holding = asyncio.create_task(hold_open(holder, topic, "held", 5.0))
            await kill_leaders(database_url, kafka, watch, processes, KILLS)
            enough.set()
            await asyncio.gather(*writing, holding)
            await until_sent(watch, within=60)
        truth: dict[str, list[UUID]] = {}
        for row in await watch.fetch("SELECT key, id FROM truth ORDER BY key, n"):
            truth.setdefault(row["key"], []).append(row["id"])
    found = await arrived(kafka, topic)
    verdict = judge(found, truth, KILLS)
    assert not any(verdict.values()), verdict
    assert sum(map(len, truth.values())) > 500 and len(truth) == len(KEYS) + 1
    assert sum(writer.deadlocks for writer in writers) > 0, "the orders were not hostile"


def test_the_judge_sees_what_is_wrong() -> None:
    """The test above can fail: a lost event, a strange one, a swap and a changed copy are all seen."""

    class Record:
        def __init__(self, key: str, event: int, value: bytes = b"") -> None:
            self.key, self.value = key.encode(), value
            self.headers = [("ce_id", str(UUID(int=event)).encode())]

    found = Arrived()
    found.records[0] += [Record("a", 2), Record("a", 1), Record("b", 9), Record("a", 2, b"x")]
    truth = {"a": [UUID(int=1), UUID(int=2)], "c": [UUID(int=3)]}
    assert judge(found, truth, 0) == {
        "lost": 1,
        "never committed": 1,
        "misordered keys": 2,
        "copies that differ": 1,
        "too many repetitions": 1,
    }
