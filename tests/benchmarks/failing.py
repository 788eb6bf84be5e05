"""R0 and R9: what a killed relay costs.

R0: the adversarial mix of tests/chaos/relay (late commits, rollbacks, deadlocks, bursts, key locks) while leading
relays are killed; every committed event is on the topic, and each key in the order of its transactions. R9: of two
relays the leading one is killed; the clock runs from there to the first record of the other, whose row is committed
right after the kill.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from milepost.outbox.position import PAGE_ROWS

from tests.chaos.relay.test_adversarial import KEYS, TRUTH, WRITERS, Writer, kill_leaders
from tests.support.outbox import (
    Noted,
    arrived,
    connected,
    publish_noted,
    relay_processes,
    until_leads,
    until_sent,
)

from .harness import LEASE, Bench

KILLS = 3


async def adversarial(bench: Bench) -> None:
    """One round of R0."""
    bench.say(f"R0 adversarial mix, {KILLS} kills")
    topic = await bench.topic()
    enough = asyncio.Event()
    async with bench.database() as url, connected(url, WRITERS + 1) as (watch, *connections):
        await watch.execute(TRUTH)
        writers = [Writer(connection, topic, seed) for seed, connection in enumerate(connections)]
        async with relay_processes(url, bench.kafka, 2) as processes:
            writing = [asyncio.create_task(writer.run(enough)) for writer in writers]
            await kill_leaders(url, bench.kafka, watch, processes, KILLS)
            enough.set()
            await asyncio.gather(*writing)
            await until_sent(watch, within=60)
        truth: dict[str, list[UUID]] = {key: [] for key in KEYS}
        for row in await watch.fetch("SELECT key, id FROM truth ORDER BY key, n"):
            truth[row["key"]].append(row["id"])
    found = await arrived(bench.kafka, topic)
    ids, order = found.ids(), found.order()
    lost = len({event for events in truth.values() for event in events} - set(ids))
    misordered = sum(order.get(key.encode(), []) != events for key, events in truth.items())
    bench.rate("R0 committed events", sum(map(len, truth.values())))
    bench.figure("R0", lost + misordered)
    bench.figure("R0.repeated", (len(ids) - len(set(ids))) / KILLS / PAGE_ROWS)


async def takeover(bench: Bench) -> None:
    """One round of R9."""
    bench.say("R9 takeover")
    topic = await bench.topic()
    async with bench.database() as url, connected(url) as (connection,):
        async with relay_processes(url, bench.kafka, 2, MILEPOST_LEASE=f"{LEASE:g}s") as processes:
            leader = await until_leads(connection, processes)
            await publish_noted(connection, topic, [Noted(key="k", n=1)])
            await bench.until_on_topic(topic, 1)
            await leader.end()
            began = time.perf_counter()
            await publish_noted(connection, topic, [Noted(key="k", n=2)])
            await bench.until_on_topic(topic, 2)
            bench.figure("R9", bench.rate("takeover, s", time.perf_counter() - began) - LEASE)


async def measure(bench: Bench) -> None:
    """Run all rounds."""
    for _ in range(bench.sizes.rounds):
        await adversarial(bench)
        await takeover(bench)
