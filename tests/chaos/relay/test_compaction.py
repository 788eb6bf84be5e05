"""A tombstone makes its key vanish when the broker compacts; MILEPOST_CHAOS=long, for brokers look every 15 seconds."""

from __future__ import annotations

import os

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from milepost import Tombstone, publish

from tests.support.outbox import Noted, arrived, connected, relaying, until_sent
from tests.support.waiting import until

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}


@pytest.mark.skipif(
    os.environ.get("MILEPOST_CHAOS") != "long", reason="MILEPOST_CHAOS=long: waits for the broker"
)
async def test_the_key_is_gone_and_the_others_stay(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.compacted"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics(
        [NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs=COMPACTED)]
    )
    await admin.close()
    n = 0

    async def keys_left() -> set[bytes] | None:
        """Each look adds a record, since only closed segments are compacted."""
        nonlocal n
        n += 1
        async with connection.transaction():
            await publish(connection, Noted(key="beat", n=n), topic=topic)
        await until_sent(connection)
        found = {record.key for record in (await arrived(kafka, topic)).all()}
        return found if b"gone" not in found else None

    async with relaying(database_url, kafka), connected(database_url) as (connection,):
        async with connection.transaction():
            await publish(connection, Noted(key="gone"), Noted(key="kept"), topic=topic)
        assert await keys_left() is None
        async with connection.transaction():
            await publish(connection, Tombstone(Noted, key="gone"), topic=topic)
        left = await until(keys_left, within=240, every=1.0, what="the key to be compacted away")
    assert left == {b"kept", b"beat"}
