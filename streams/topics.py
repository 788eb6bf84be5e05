"""Creating topics that are missing, and asking Kafka which exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from ..schemas.errors import StartError
from .kafka_client import KafkaAt, client_arguments, kafka_unreachable

#: Partitions of a topic that Milepost creates: room for six processes of a group.
PARTITIONS = 6
#: How often to look whether a new topic can be seen, in seconds.
_LOOK = 0.1


async def ensure_topics(
    kafka: KafkaAt, names: Iterable[str], *, partitions: int = PARTITIONS, within: float = 30.0
) -> list[str]:
    """Create those of `names` that do not exist and wait until they can be seen.

    Somebody else creating them at the same time is fine.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers (host:port, comma-separated) in plain text.
        names: Topics.
        partitions: Partitions of a new topic; existing ones keep theirs.
        within: Longest wait in seconds.

    Returns:
        Names of the topics created here, sorted.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached in time.
        StartError: MP206 when Kafka refuses to create a topic.
    """
    wanted = sorted(set(names))
    async with _admin(kafka, within) as admin:
        existing = set(await admin.list_topics())
        missing = [name for name in wanted if name not in existing]
        if not missing:
            return []
        response: Any = await admin.create_topics([_new(name, partitions) for name in missing])
        created = sorted(name for name, *error in response.topic_errors if _created(name, error))
        await _visible(admin, missing)
        return created


async def _visible(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Wait until the broker shows new topics: the controller answers before brokers have learned of them."""
    while True:
        found = await admin.describe_topics(names)
        if not any(topic["error_code"] for topic in found):
            return
        await asyncio.sleep(_LOOK)


async def describe(kafka: KafkaAt, names: Iterable[str], *, within: float = 30.0) -> dict[str, int]:
    """Return the number of partitions of those of `names` that exist.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers (host:port, comma-separated) in plain text.
        names: Topics.
        within: Longest wait in seconds.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached in time.
    """
    async with _admin(kafka, within) as admin:
        found = await admin.describe_topics(sorted(set(names)))
    return {topic["topic"]: len(topic["partitions"]) for topic in found if not topic["error_code"]}


async def keeps(kafka: KafkaAt, names: Iterable[str], *, within: float = 30.0) -> dict[str, timedelta | None]:
    """Return how long topics keep their records, by name; None for good.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers (host:port, comma-separated) in plain text.
        names: Topics; those that do not exist, or whose configuration this client may not see, are left out.
        within: Longest wait in seconds.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached in time.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(set(names))]
    if not resources:
        return {}
    async with _admin(kafka, within) as admin:
        answers: Any = await admin.describe_configs(resources)
    return {
        name: _kept({entry[0]: entry[1] for entry in entries})
        for answer in answers
        for error, _, _, name, entries in answer.resources
        if not error
    }


def _kept(config: dict[str, str]) -> timedelta | None:
    if "delete" not in config.get("cleanup.policy", "delete"):
        return None
    milliseconds = int(config.get("retention.ms", "-1"))
    return None if milliseconds < 0 else timedelta(milliseconds=milliseconds)


def _new(name: str, partitions: int) -> NewTopic:
    # -1 leaves the replication factor to the broker (KIP-464); aiokafka lets it pass beside an empty mapping.
    return NewTopic(name, num_partitions=partitions, replication_factor=-1, replica_assignments={})


def _created(name: str, error: list[Any]) -> bool:
    code, message = error[0], error[1] if len(error) > 1 else None
    if not code:
        return True
    kind = for_code(code)
    if kind is TopicAlreadyExistsError:
        return False
    raise StartError(
        "MP206",
        f"topic {name}: Kafka refused to create it ({kind.__name__}: {message or 'no reason given'}). "
        "Create it by hand, or give this client the right to.",
    )


@asynccontextmanager
async def _admin(kafka: KafkaAt, within: float) -> AsyncIterator[AIOKafkaAdminClient]:
    timeout = max(1, int(within * 1000))
    admin = AIOKafkaAdminClient(**client_arguments(kafka), request_timeout_ms=timeout)
    try:
        async with asyncio.timeout(within):
            await admin.start()
            yield admin
    except (TimeoutError, KafkaError, OSError) as error:
        if isinstance(error, KafkaError) and not error.retriable:
            raise
        raise await kafka_unreachable(kafka, error) from error
    finally:
        with suppress(Exception):
            async with asyncio.timeout(5):
                await admin.close()
