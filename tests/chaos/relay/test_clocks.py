"""Machines whose clocks are minutes off relay like others: who leads is the database's clock's to say."""

from __future__ import annotations

import signal

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

LEASE = {"MILEPOST_LEASE": "3s"}
MINUTES = 7 * 60


async def test_clocks_minutes_off(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.skewed"
    await make_topics(kafka, topic, partitions=1)
    async with connected(database_url) as (connection,):
        ids = []
        async with relay_processes(database_url, kafka, 1, AHEAD=str(MINUTES), **LEASE) as processes:
            ahead = await until_leads(connection, processes)
            behind = await RelayProcess(database_url, kafka, AHEAD=str(-MINUTES), **LEASE).start()
            processes.append(behind)
            for n in range(20):
                ids += await publish_noted(connection, topic, [Noted(key="k", n=n)])
                await until_sent(connection)
                state = await outbox_state(connection)
                assert (state.owner, state.epoch) == (ahead.owner, 1), (
                    "nobody takes over a lease that is kept"
                )
            await ahead.end(signal.SIGKILL)
            ids += await publish_noted(connection, topic, [Noted(key="k", n=n) for n in range(20, 30)])
            await until_leads(connection, [behind], within=20)
            await until_sent(connection)
            assert (await outbox_state(connection)).epoch == 2
        found = await arrived(kafka, topic)
        assert found.ids() == ids, "each once, in order"
        now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert all(abs(record.timestamp / 1000 - now) < 60 for record in found.all()), (
            "records carry the right time"
        )
