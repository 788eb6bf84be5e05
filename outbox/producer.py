"""One idempotent aiokafka producer with bounds that aiokafka does not have.

aiokafka 0.14 waits without bound for a broker that is away (send, stop), retries an idempotent batch for
ever, and after a failed batch its sequence numbers are broken. Here every wait has a deadline, and a producer
that failed once is thrown away with all that it still meant to send. Its log lines, ten a second while a broker is
away, are kept back, because the relay says once a minute what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import zip_longest
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from ..schemas.ids import Clock
from ..streams.kafka_client import KafkaAt, client_arguments, quiet_client, why_unreachable
from .encode import BATCH_BYTES, TopicPartition
from .facts import TopicFacts, describe_topics
from .produce import write_once
from .records import Batch

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_OPEN_WITHIN = 5.0
#: Longest wait for one answer of a broker; a batch without one is sent again, and the broker drops what it has.
_REQUEST = timedelta(seconds=3)
_LOOK_UPS = 3
_LOOK_AGAIN = 0.1
_SLICE = 0.25


class SendFailed(Exception):
    """A page did not get through in whole; the producer is of no more use.

    Attributes:
        done: Numbers of the rows that were acknowledged all the same.
        refused: Batches that the broker will never take, with their partition and its error.
    """

    def __init__(
        self,
        reason: str,
        done: Collection[int] = (),
        refused: Iterable[tuple[TopicPartition, Batch, Exception]] = (),
    ) -> None:
        super().__init__(reason)
        self.done = set(done)
        self.refused = list(refused)


class Producer:
    """Sends whole batches and says what was acknowledged.

    Args:
        kafka: Where Kafka is: settings, or bootstrap servers in plain text.
        delivery_timeout: Longest wait for the acknowledgement of a page.
    """

    def __init__(self, kafka: KafkaAt, *, clock: Clock, delivery_timeout: timedelta) -> None:
        quiet_client()
        self._clock = clock
        self._timeout = delivery_timeout.total_seconds()
        self._kafka = kafka
        self._producer: Any = AIOKafkaProducer(
            **client_arguments(kafka),
            client_id="milepost-relay",
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=max(1, int(min(delivery_timeout, _REQUEST).total_seconds() * 1000)),
        )
        write_once(self._producer.client)
        self._failed = False
        self._opening: asyncio.Task[None] | None = None
        self.partitions: dict[str, int] = {}

    async def open(self) -> None:
        """Connect.

        Raises:
            SendFailed: Not within five seconds.
        """
        self._opening = asyncio.create_task(self._producer.start())
        done, _ = await asyncio.wait({self._opening}, timeout=_OPEN_WITHIN)
        error = self._opening.exception() if done else TimeoutError("no answer")
        if isinstance(error, KafkaError | OSError | TimeoutError):
            self._failed = True
            raise SendFailed(f"cannot be reached: {await why_unreachable(self._kafka, error)}") from error
        if error is not None:
            raise error

    async def look_up(self, topics: Collection[str]) -> dict[str, tuple[str, str]]:
        """Bring `partitions` up to date for topics.

        Returns:
            Code and message of those that cannot be written to, because they do not exist or are denied.

        Raises:
            SendFailed: Kafka did not answer.
        """
        missing = self._known(topics)
        for attempt in range(_LOOK_UPS if missing else 0):
            if attempt:
                await asyncio.sleep(_LOOK_AGAIN)
            await self._refresh(missing)
            missing = self._known(topics)
            if not missing:
                break
        cluster = self._producer.client.cluster
        return {
            topic: ("TOPIC_DENIED", f"this client may not see topic {topic}")
            if topic in cluster.unauthorized_topics
            else ("TOPIC_MISSING", f"topic {topic} does not exist")
            for topic in missing
        }

    async def describe(self, topics: Collection[str]) -> dict[str, TopicFacts | None]:
        """Ask about topics' settings, as `describe_topics` does."""
        return await describe_topics(self._producer.client, topics, within=_REQUEST)

    async def send(self, batches: Mapping[TopicPartition, list[Batch]], allowed: Callable[[], float]) -> None:
        """Send batches and wait for their acknowledgements, one batch per partition at a time.

        Args:
            allowed: Returns the seconds for which sending may still go on; may raise to end it.

        Raises:
            SendFailed: Something was refused, or not acknowledged in time.
        """
        done: set[int] = set()
        until = self._clock.monotonic() + self._timeout

        def left() -> float:
            return min(until - self._clock.monotonic(), allowed())

        try:
            for turn in zip_longest(*batches.values()):
                await self._turn(dict(zip(batches, turn, strict=True)), done, left)
        except BaseException:
            self._failed = True
            raise

    async def close(self) -> None:
        """Disconnect within about six seconds; what was not acknowledged is given up and never sent."""
        producer = self._producer
        try:
            await self._settle_opening()
            if self._failed:
                await _kill(producer)
            with suppress(Exception):
                async with asyncio.timeout(2.0):
                    await producer.stop()
        finally:
            producer._closed = True

    async def _settle_opening(self) -> None:
        """Let the first connection end by its own timeout: aiokafka leaks it when it is cancelled there."""
        opening, client = self._opening, self._producer.client
        if opening is None or opening.done():
            return
        self._failed = True
        until = self._clock.monotonic() + _REQUEST.total_seconds() + 0.5
        while not opening.done() and client._sync_task is None and self._clock.monotonic() < until:
            await asyncio.wait({opening}, timeout=0.1)
        opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await opening

    async def _turn(
        self, batches: Mapping[TopicPartition, Batch | None], done: set[int], left: Callable[[], float]
    ) -> None:
        waiting: dict[asyncio.Future[Any], tuple[TopicPartition, Batch]] = {}
        refused: list[tuple[TopicPartition, Batch, Exception]] = []
        try:
            for (topic, partition), batch in batches.items():
                if batch is not None:
                    async with asyncio.timeout(max(0.0, left())):
                        acknowledged = await self._producer.send_batch(batch, topic, partition=partition)
                    waiting[acknowledged] = ((topic, partition), batch)
            while waiting:
                if left() <= 0:
                    raise TimeoutError("no acknowledgement in time")
                finished, _ = await asyncio.wait(waiting, timeout=min(_SLICE, max(0.0, left())))
                for future in finished:
                    _sort(future, *waiting.pop(future), done, refused)
        except (KafkaError, OSError, TimeoutError) as error:
            raise SendFailed(_words(error), done, refused) from error
        finally:
            for future in waiting:
                future.add_done_callback(_forget)
        if refused:
            raise SendFailed(_words(refused[0][2]), done, refused)

    def _known(self, topics: Iterable[str]) -> list[str]:
        """Copy what the client knows, and return the topics that it does not."""
        missing = []
        for topic in topics:
            found = self._producer.client.cluster.partitions_for_topic(topic)
            if found:
                self.partitions[topic] = len(found)
            else:
                self.partitions.pop(topic, None)
                missing.append(topic)
        return missing

    async def _refresh(self, missing: Iterable[str]) -> None:
        client = self._producer.client
        try:
            async with asyncio.timeout(self._timeout):
                client.set_topics({*self.partitions, *missing})
                answered = await client.force_metadata_update()
        except (KafkaError, OSError, TimeoutError) as error:
            self._failed = True
            raise SendFailed(f"does not answer: {_words(error)}") from error
        if not answered:
            self._failed = True
            raise SendFailed("does not answer")


def _sort(
    future: asyncio.Future[Any],
    where: TopicPartition,
    batch: Batch,
    done: set[int],
    refused: list[tuple[TopicPartition, Batch, Exception]],
) -> None:
    error = future.exception()
    if error is None:
        done.update(batch.seqs)
    elif isinstance(error, Exception):
        refused.append((where, batch, error))


def is_too_large(error: Exception) -> bool:
    """Whether the broker says that a batch is over its limit."""
    return isinstance(error, TOO_LARGE)


def is_denied(error: Exception) -> bool:
    """Whether the broker does not let this client write to the topic."""
    return isinstance(error, TopicAuthorizationFailedError)


async def _kill(producer: Any) -> None:
    """End the sender before anything else: it would connect anew and send what we have given up."""
    sender = producer._sender.sender_task
    for _ in range(50):
        if sender is None or sender.done():
            break
        # Every cancel ends one request that the sender is waiting for.
        sender.cancel()
        await asyncio.sleep(0)
    producer._message_accumulator.fail_all(KafkaError("given up"))
    # A frozen broker takes no more bytes, and a plain close waits for those on their way.
    for connection in list(producer.client._conns.values()):
        if connection._writer is not None:
            connection._writer.transport.abort()


def _forget(future: asyncio.Future[Any]) -> None:
    """Look at an outcome that nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
