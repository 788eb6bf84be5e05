"""What Kafka says about topics."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.protocol.admin import DescribeConfigsRequest

#: Number of topics among the protocol's resource types, and names of a topic's settings.
_TOPIC, _COMPACTED, _LIMIT = 2, "cleanup.policy", "max.message.bytes"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What Kafka says about a topic.

    Attributes:
        compacted: Whether a record without a key is refused.
        max_bytes: Largest batch it takes, in bytes.
    """

    compacted: bool
    max_bytes: int | None


async def describe_topics(
    client: Any, topics: Collection[str], *, within: timedelta
) -> dict[str, TopicFacts | None]:
    """Ask about topics' settings on a connection that is there.

    aiokafka's admin client would open one of its own, and leaves it open when it is cancelled meanwhile.

    Args:
        client: An AIOKafkaClient that is connected.
        within: Longest wait.

    Returns:
        What Kafka says, None for a topic that does not exist. What it does not let this client see is left out,
        and so is everything when it does not answer: then its refusals tell what there is to know.
    """
    request = DescribeConfigsRequest(
        [(_TOPIC, topic, [_COMPACTED, _LIMIT]) for topic in topics], include_synonyms=False
    )
    try:
        async with asyncio.timeout(within.total_seconds()):
            answer = await client.send(client.get_random_node(), request)
    except (KafkaError, OSError, TimeoutError, AssertionError):
        return {}
    return dict(found for resource in answer.resources for found in _facts(*resource))


def _facts(
    error: int, _message: str | None, _kind: int, topic: str, entries: Iterable[Any]
) -> list[tuple[str, TopicFacts | None]]:
    if error == UnknownTopicOrPartitionError.errno:
        return [(topic, None)]
    if error:
        return []
    values = {entry[0]: entry[1] or "" for entry in entries}
    limit = values.get(_LIMIT, "")
    compacted = "compact" in values.get(_COMPACTED, "")
    return [(topic, TopicFacts(compacted, int(limit) if limit.isdigit() else None))]
