"""Where topics end and since when records wait, asked once and as a member of no group: how far readers are behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from .kafka_client import KafkaAt, client_arguments, kafka_unreachable, quiet_client

#: Longest wait for Kafka to answer, in seconds.
PATIENCE = 10.0
#: Longest wait for single records, in seconds: where there are only marks of transactions, none comes.
GLANCE = 2.0


async def end_offsets(kafka: KafkaAt, topics: Collection[str]) -> dict[tuple[str, int], int]:
    """Return for each partition the offset behind its last committed record; nothing of topics that are not there.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached, or does not answer in time.
    """
    try:
        async with _client(kafka) as consumer, asyncio.timeout(PATIENCE):
            await consumer.start()
            await consumer._client.set_topics(set(topics))
            places = [
                TopicPartition(topic, number)
                for topic in topics
                for number in sorted(consumer.partitions_for_topic(topic) or ())
            ]
            ends = await consumer.end_offsets(places) if places else {}
    except (KafkaError, TimeoutError, OSError) as error:
        raise await kafka_unreachable(kafka, error) from error
    return {(place.topic, place.partition): end for place, end in ends.items()}


async def written_at(
    kafka: KafkaAt, places: Collection[tuple[str, int, int]]
) -> dict[tuple[str, int, int], datetime]:
    """Return when the first record from each place on was written; nothing of places where none comes soon.

    Args:
        places: Topic, partition and offset.
    """
    found: dict[tuple[str, int, int], datetime] = {}
    if not places:
        return found
    with suppress(KafkaError, TimeoutError, OSError):
        async with _client(kafka) as consumer, asyncio.timeout(GLANCE):
            await consumer.start()
            left = set(places)
            while left:
                # Of a partition one place at a time, the oldest first.
                asked = {
                    TopicPartition(topic, number): offset
                    for topic, number, offset in sorted(left, reverse=True)
                }
                consumer.assign(list(asked))
                for partition, offset in asked.items():
                    consumer.seek(partition, offset)
                left -= {(at.topic, at.partition, offset) for at, offset in asked.items()}
                while asked:
                    for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                        consumer.pause(partition)
                        place = (partition.topic, partition.partition, asked.pop(partition))
                        if records[0].timestamp > 0:
                            found[place] = datetime.fromtimestamp(records[0].timestamp / 1000, UTC)
    return found


@asynccontextmanager
async def _client(kafka: KafkaAt) -> AsyncIterator[AIOKafkaConsumer]:
    """Make a client that reads what is committed, and stop it in the end."""
    quiet_client()
    consumer = AIOKafkaConsumer(
        **client_arguments(kafka),
        client_id="milepost-ends",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=1024,
    )
    try:
        yield consumer
    finally:
        with suppress(Exception):
            async with asyncio.timeout(5):
                await consumer.stop()
