"""Where topics end, asked once and as a member of no group: how far those who read them are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from .kafka_client import KafkaAt, client_arguments, kafka_unreachable, quiet_client

#: Longest wait for Kafka to answer, in seconds.
PATIENCE = 10.0


async def end_offsets(kafka: KafkaAt, topics: Collection[str]) -> dict[tuple[str, int], int]:
    """Return for each partition the offset behind its last committed record; nothing of topics that are not there.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached, or does not answer in time.
    """
    quiet_client()
    consumer = AIOKafkaConsumer(
        **client_arguments(kafka),
        client_id="milepost-ends",
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    try:
        async with asyncio.timeout(PATIENCE):
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
    finally:
        with suppress(Exception):
            async with asyncio.timeout(5):
                await consumer.stop()
    return {(place.topic, place.partition): end for place, end in ends.items()}
