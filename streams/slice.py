"""Reading a stretch of a topic once, as a member of no group: nothing is joined, sought or committed for anybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ..schemas.envelope import Record
from ..schemas.errors import StateError
from .kafka_client import KafkaAt, client_arguments, kafka_unreachable, quiet_client
from .kafka_lenient import Leniency, obeying

#: Longest wait for Kafka to give the next record or answer a question, in seconds.
PATIENCE = 30.0
_POLL_MS = 500


class Slice:
    """A topic, as `opened` gives it.

    Args:
        consumer: aiokafka's, started and without a group.
        topic: The one topic that it reads.
        leniency: How it parses.
    """

    def __init__(self, consumer: Any, topic: str, leniency: Leniency) -> None:
        self._leniency = leniency
        self._consumer = consumer
        self._topic = topic

    async def bounds(self) -> dict[int, tuple[int, int]]:
        """Return for each partition the first offset there is, and the one behind the last committed record.

        Returns:
            Nothing when there is no such topic.
        """
        async with asyncio.timeout(PATIENCE):
            # aiokafka knows the partitions of topics that it has been told of, and asks for those alone.
            await self._consumer._client.set_topics({self._topic})
            numbers = self._consumer.partitions_for_topic(self._topic) or set()
            places = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            if not places:
                return {}
            begins = await self._consumer.beginning_offsets(places)
            ends = await self._consumer.end_offsets(places)
        return {place.partition: (begins[place], ends[place]) for place in places}

    async def at(self, instant: datetime, partitions: Mapping[int, Any]) -> dict[int, int | None]:
        """Return for each partition the first offset whose record has this timestamp or a later one, or None."""
        milliseconds = max(0, int(instant.timestamp() * 1000))
        wanted = {TopicPartition(self._topic, number): milliseconds for number in partitions}
        async with asyncio.timeout(PATIENCE):
            found = await self._consumer.offsets_for_times(wanted)
        return {place.partition: None if entry is None else entry.offset for place, entry in found.items()}

    async def read(self, partition: int, begin: int, end: int, *, most: int) -> AsyncGenerator[list[Record]]:
        """Give the records of a partition from `begin` up to and without `end`, in order, at most `most` at once.

        A record that aiokafka cannot read comes in its place without its headers.

        Raises:
            StateError: MP495 when Kafka no longer has what is to be read, or gives nothing more.
        """
        place = TopicPartition(self._topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, begin)
        clock = asyncio.get_running_loop().time
        position, since = begin, clock()
        while position < end:
            try:
                records = await self._poll(place, most)
            except UnicodeDecodeError:
                # What the poll had taken before it is lost to it.
                self._leniency.on = True
                self._consumer.seek(place, position)
                continue
            except OffsetOutOfRangeError as error:
                raise self._gone(partition, position) from error
            reached = records[-1].offset + 1 if records else await self._consumer.position(place)
            if reached > position:
                position, since = reached, clock()
            elif clock() - since > PATIENCE:
                raise self._gone(partition, position)
            wanted = [record for record in records if record.offset < end]
            if wanted:
                yield wanted
                # The time that others have taken for them is not Kafka's.
                since = clock()

    async def _poll(self, place: TopicPartition, most: int) -> list[Record]:
        found = await self._consumer.getmany(place, timeout_ms=_POLL_MS, max_records=most)
        self._leniency.passed(found.get(place, ()))
        return [
            Record(raw.topic, raw.partition, raw.offset, raw.key, raw.value, raw.headers, raw.timestamp)
            for raw in found.get(place, ())
        ]

    def _gone(self, partition: int, offset: int) -> StateError:
        return StateError(
            "MP495",
            f"topic {self._topic}/{partition}: Kafka gives no record from offset {offset} on, though the slice is not "
            "read to its end. Its retention may have removed them meanwhile, or a broker is away; begin a new replay "
            "or resume this one.",
        )


@asynccontextmanager
async def opened(kafka: KafkaAt, topic: str) -> AsyncGenerator[Slice]:
    """Connect to read a topic.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers in plain text.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached, also later.
    """
    quiet_client()
    leniency = Leniency()
    consumer = AIOKafkaConsumer(
        **client_arguments(kafka),
        client_id="milepost-replay",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    try:
        try:
            async with asyncio.timeout(PATIENCE):
                with obeying(leniency):
                    await consumer.start()
        except (TimeoutError, OSError) as error:
            raise await kafka_unreachable(kafka, error) from error
        yield Slice(consumer, topic, leniency)
    except KafkaError as error:
        raise await kafka_unreachable(kafka, error) from error
    finally:
        with suppress(Exception):
            async with asyncio.timeout(5):
                await consumer.stop()


async def group_offsets(kafka: KafkaAt, group: str, topic: str) -> dict[int, int]:
    """Return the next offsets that a group has committed for a topic, by partition.

    Raises:
        ConnectError: MP502 when Kafka cannot be reached.
    """
    quiet_client()
    admin = AIOKafkaAdminClient(**client_arguments(kafka))
    try:
        async with asyncio.timeout(PATIENCE):
            await admin.start()
            found = await admin.list_consumer_group_offsets(group)
    except (KafkaError, TimeoutError, OSError) as error:
        raise await kafka_unreachable(kafka, error) from error
    finally:
        with suppress(Exception):
            async with asyncio.timeout(5):
                await admin.close()
    return {
        place.partition: entry.offset
        for place, entry in found.items()
        if place.topic == topic and entry.offset >= 0
    }
