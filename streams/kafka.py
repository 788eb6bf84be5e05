"""A FastStream batch subscriber made safe: raw records out, every failure seen, every wait bounded.

What FastStream 0.7 and aiokafka 0.14 do, and what is done about it here:

- FastStream's batch loop swallows what a parser or handler raises and goes on, past the records. Here the
  parser only wraps, and a failure of `receive` breaks the session, so that a new one reads them again.
- An error other than KafkaError ends FastStream's poll task, which is restarted at once, for ever; a
  KafkaError makes it sleep five seconds, for ever, even when aiokafka's coordinator has died. Here the first
  of either breaks the session.
- After an empty poll FastStream sleeps another `batch_timeout_ms`. Here an empty poll polls again.
- A record that was polled before a rebalance can be handed over after it. `admit` sees each poll at the
  instant at which it returns and drops what does not belong to the present assignment.
- A header name that is no UTF-8 makes aiokafka raise in the middle of a poll, again and again, and what the poll
  had already taken from other partitions is lost to it. Here the next session reads again from the start positions
  with a parser that hands that record on without its headers (`kafka_lenient.py`).
- aiokafka's stop waits without bound when the broker is away, and leaves sockets open when it stops in the middle of a
  join. `close` cuts it off and closes what is left.
- aiokafka logs ten lines a second while the broker is away. Here its logger is silenced where nobody set its level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypedDict

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaConnectionError
from faststream.kafka import KafkaBroker
from faststream.kafka.message import FAKE_CONSUMER, KafkaMessage
from faststream.middlewares import AckPolicy

from ..schemas.envelope import Record
from .kafka_client import KafkaAt, client_arguments, kafka_unreachable, quiet_client, servers_of
from .kafka_lenient import Leniency, obeying
from .kafka_poll import Partition, Polls, limit_waits, watched
from .kafka_sockets import Sockets, end_consumer
from .membership import GroupOptions, Rebalances

_POLL_MS = 500


class _Listener:
    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self._rebalances.assigned(sorted((found.topic, found.partition) for found in assigned))

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self._rebalances.revoked(sorted((found.topic, found.partition) for found in revoked))


ConsumerRebalanceListener.register(_Listener)


class _Broker(KafkaBroker):
    """FastStream's broker, with a say in how its consumer polls."""

    def __init__(self, kafka: KafkaAt, guard: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(servers_of(kafka), **options)
        self._arguments = client_arguments(kafka)
        self._guard = guard

    async def _connect(self) -> Callable[..., AIOKafkaConsumer]:
        build = await super()._connect()

        def guarded(**options: Any) -> AIOKafkaConsumer:
            return self._guard(build(**{**options, **self._arguments}))

        self.config.broker_config.builder = guarded
        return guarded


class GroupSession:
    """One membership in a consumer group, from `start` until it breaks or is closed.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers in plain text.
        client: Client id, for Kafka's logs.
        group: Consumer group.
        topics: Topics to read.
        max_records: Most records of one poll.
        options: Timing.
        careful: Parse leniently, until a record that cannot be read has been passed.
    """

    def __init__(
        self,
        kafka: KafkaAt,
        *,
        client: str,
        group: str,
        topics: Sequence[str],
        max_records: int,
        polls: Polls,
        rebalances: Rebalances,
        options: GroupOptions,
        careful: bool = False,
    ) -> None:
        quiet_client()
        self._polls = polls
        self._options = options
        self._kafka = kafka
        self._sockets = Sockets()
        self._leniency = Leniency(careful)
        self._broker = _Broker(
            kafka,
            partial(watched, polls=polls, leniency=self._leniency),
            client_id=client,
            consumer_only=True,
            apply_types=False,
            logger=None,
            graceful_timeout=1.0,
            # A join waits for the other members, at most the session timeout; a request must outlast that.
            request_timeout_ms=_ms(options.session_timeout) + 10_000,
            metadata_max_age_ms=_ms(options.metadata_max_age),
        )
        self._subscriber = self._broker.subscriber(
            *topics,
            batch=True,
            group_id=group,
            ack_policy=AckPolicy.MANUAL,
            listener=_Listener(rebalances),
            parser=_parse,
            decoder=_raw,
            no_reply=True,
            max_records=max_records,
            batch_timeout_ms=_POLL_MS,
            **_consumer_options(options),
        )
        self._subscriber(self._receive)

    @property
    def consumer(self) -> Any:
        """The aiokafka consumer; None before `start` made it and after `close`."""
        return self._subscriber.consumer

    def own(self) -> None:
        """Let whatever the calling task begins from now on belong to this session, and end with it."""
        self._sockets.own()

    @property
    def polling(self) -> bool:
        """Whether the poll task lives."""
        return any(not task.done() for task in self._subscriber.tasks)

    async def start(self) -> None:
        """Connect, join the group and begin to poll.

        Raises:
            ConnectError: MP502 when Kafka cannot be reached.
            KafkaError: A topic does not exist, or the group refuses this member.
            TimeoutError: No assignment in time.
        """
        try:
            async with asyncio.timeout(self._options.start_within.total_seconds()):
                with obeying(self._leniency):
                    await self._broker.start()
        except KafkaConnectionError as error:
            raise await kafka_unreachable(self._kafka, error) from error

    async def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset of a partition, or None."""
        offset: int | None = await self.consumer.committed(TopicPartition(*partition))
        return offset

    async def bounds(self, partition: Partition) -> tuple[int, int]:
        """Return the first offset that a partition holds, and the one behind its last."""
        place = TopicPartition(*partition)
        begin = (await self.consumer.beginning_offsets([place]))[place]
        return begin, (await self.consumer.end_offsets([place]))[place]

    async def sent_since(self, partition: Partition, instant: datetime) -> int | None:
        """Return the first offset whose record is not older than an instant, None without one."""
        place = TopicPartition(*partition)
        found = await self.consumer.offsets_for_times({place: int(instant.timestamp() * 1000)})
        return None if found[place] is None else int(found[place].offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit exactly these next offsets."""
        await self.consumer.commit({TopicPartition(*partition): next for partition, next in offsets.items()})

    async def seek(self, partition: Partition, offset: int | None) -> None:
        """Move to an offset, None being the earliest."""
        if offset is None:
            await self.consumer.seek_to_beginning(TopicPartition(*partition))
        else:
            self.consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partition: Partition) -> None:
        """Fetch no more of a partition."""
        self.consumer.pause(TopicPartition(*partition))
        limit_waits(self.consumer)

    def resume(self, partition: Partition) -> None:
        """Fetch a partition again."""
        self.consumer.resume(TopicPartition(*partition))
        limit_waits(self.consumer)

    async def behind(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return (position, end) of partitions, asking Kafka for the ends."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        ends = await self.consumer.end_offsets(wanted)
        return {(tp.topic, tp.partition): (await self.consumer.position(tp), ends[tp]) for tp in wanted}

    async def close(self, within: float) -> None:
        """Leave the group and disconnect; what takes longer than `within` seconds is cut off."""
        consumer = self.consumer
        leaving = asyncio.create_task(self._broker.stop(), name="milepost leave")
        try:
            await end_consumer(consumer, leaving, within)
        finally:
            self._sockets.close()

    async def _receive(self, raws: Sequence[Any]) -> None:
        try:
            self._polls.receive([_record(raw) for raw in raws])
        except Exception as error:
            self._polls.broken(error)
            raise


class _ConsumerOptions(TypedDict):
    auto_offset_reset: Literal["earliest"]
    isolation_level: Literal["read_committed"]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


def _consumer_options(options: GroupOptions) -> _ConsumerOptions:
    return {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "session_timeout_ms": _ms(options.session_timeout),
        "heartbeat_interval_ms": max(1, _ms(options.session_timeout) // 4),
        "max_poll_interval_ms": _ms(options.max_poll_interval),
    }


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)


# FastStream has a function that is not asynchronous called by a thread of a pool, twice a poll for these two.
async def _parse(message: Any) -> KafkaMessage:
    """Wrap what was polled; FastStream would skip the records if this raised, so it only wraps."""
    return KafkaMessage(raw_message=message, body=b"", consumer=FAKE_CONSUMER)


async def _raw(message: Any) -> Any:
    return message.raw_message


def _record(raw: Any) -> Record:
    return Record(raw.topic, raw.partition, raw.offset, raw.key, raw.value, raw.headers, raw.timestamp)
