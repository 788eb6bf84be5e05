"""A relay that is frozen right after its lease check and thaws when another leads: only repetitions come of it."""

from __future__ import annotations

import asyncio
import signal

import pytest
from milepost.outbox.log import outbox_state

from tests.support.outbox import (
    Noted,
    RelayProcess,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relay_processes,
    until_arrived,
    until_leads,
    until_sent,
)
from tests.support.waiting import until

#: Long enough to be renewed on a busy machine: these tests count every record.
LEASE = {"MILEPOST_LEASE": "3s"}


def state_of(process: RelayProcess) -> str:
    """The kernel's word for what a process does: T is stopped."""
    with open(f"/proc/{process.process.pid}/stat") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("batch", [1, 3])
async def test_a_late_batch_only_repeats(
    database_url: str, kafka: str, topic_prefix: str, batch: int
) -> None:
    topic = f"{topic_prefix}.zombie"
    await make_topics(kafka, topic, partitions=1)
    async with connected(database_url) as (connection,):
        async with relay_processes(database_url, kafka, 1, FREEZE_AT=str(batch), **LEASE) as processes:
            (zombie,) = processes
            await until_leads(connection, processes)
            ids = []
            for n in range(batch):
                ids += await publish_noted(connection, topic, [Noted(key=f"k{n % 2}", n=n) for n in range(5)])
                if n < batch - 1:
                    await until_sent(connection)
            await until(lambda: state_of(zombie) == "T", what="the first relay to freeze before it sends")
            processes.append(await RelayProcess(database_url, kafka, **LEASE).start())
            ids += await publish_noted(connection, topic, [Noted(key=f"k{n % 2}", n=n) for n in range(5, 10)])
            found = await until_arrived(kafka, topic, ids)
            assert found.ids() == ids, "the second sent everything, once"
            before = len(found.all())
            zombie.send(signal.SIGCONT)

            async def thawed() -> bool:
                return len((await arrived(kafka, topic)).all()) > before

            await until(thawed, what="the frozen batch to arrive late")
            ids += await publish_noted(connection, topic, [Noted(key="k0", n=11)])
            found = await until_arrived(kafka, topic, ids)
            leader = (await outbox_state(connection)).owner
            assert leader == processes[1].owner, "the zombie stands by"
        assert set(found.ids()) == set(ids)
        assert found.copies_differ() == [], "same ids, same bytes"
        for events in found.order().values():
            assert events == [event for event in ids if event in events], "each key in its order"
        assert len(found.all()) == len(ids) + 5, "exactly the frozen batch came twice"


async def test_killed_between_acknowledgement_and_mark(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.unmarked"
    await make_topics(kafka, topic, partitions=1)
    async with connected(database_url) as (connection,):
        async with relay_processes(database_url, kafka, 1, DIE_AT="2", **LEASE) as processes:
            await until_leads(connection, processes)
            ids = await publish_noted(connection, topic, [Noted(key="k", n=0)])
            await until_sent(connection)
            ids += await publish_noted(connection, topic, [Noted(key="k", n=n) for n in (1, 2)])
            await asyncio.wait_for(processes[0].process.wait(), 20)
            assert (await arrived(kafka, topic)).ids() == ids
            assert (await outbox_state(connection)).lag == 2, "acknowledged, and not marked"
            processes.append(await RelayProcess(database_url, kafka, **LEASE).start())
            await until_sent(connection)
        found = await arrived(kafka, topic)
        assert found.ids() == [*ids, *ids[1:]], "what was not marked comes again, and nothing else"
        assert found.copies_differ() == []
