"""Whether a Kafka broker is ready for consumer groups."""

from __future__ import annotations

import asyncio
import contextlib

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

# Their hash codes follow each other, so the five meet each of the five partitions that hold group offsets.
GROUPS = tuple(f"milepost-probe-{number}" for number in range(5))
ANYTHING = TopicPartition("milepost-probe", 0)


async def groups_work(bootstrap: str, *, seconds: float = 10.0) -> bool:
    """Ask the coordinators of a few groups for an offset.

    The first requests after a broker's start are answered "coordinator not available" or "loading"; a service
    that comes too early waits out its own retry delays.

    Args:
        bootstrap: host:port of the broker.
        seconds: the longest this may take.

    Returns:
        Whether each coordinator answered.
    """
    try:
        return await asyncio.wait_for(_ask(bootstrap), seconds)
    except (TimeoutError, OSError, KafkaError):
        return False


async def _ask(bootstrap: str) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000)
    await admin.start()
    try:
        for group in GROUPS:
            answer = await admin.list_consumer_group_offsets(group, partitions=[ANYTHING])
            if ANYTHING not in answer:
                return False
        return True
    finally:
        with contextlib.suppress(TimeoutError, OSError, KafkaError):
            await admin.close()
