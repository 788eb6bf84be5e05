"""How a consumer is polled: what may be handed on, and what a poll that raises leads to; see `kafka.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from aiokafka.structs import ConsumerRecord

from ..schemas.envelope import Record

Partition: TypeAlias = tuple[str, int]
Poll: TypeAlias = Callable[..., Awaitable[dict[Any, list[Any]]]]

#: Header of a record that could not be read; its value says why.
UNREADABLE = "milepost-unreadable"
_PIECE = 500
_REST = 0.02


class Polls(Protocol):
    """Who takes the records; no method may wait."""

    def admit(self, partitions: Sequence[Partition]) -> set[Partition]:
        """Say, at the instant at which a poll returned, which of its partitions are to be handed on."""
        ...

    def receive(self, records: Sequence[Record]) -> None:
        """Take the admitted records of the last poll."""
        ...

    def polled(self) -> None:
        """A poll returned, with or without records."""
        ...

    def broken(self, error: BaseException) -> None:
        """This session is of no more use."""
        ...


def watched(consumer: Any, *, polls: Polls, careful: bool) -> Any:
    """Replace a consumer's `getmany` by one that waits for admitted records and reports what it raises.

    Args:
        consumer: aiokafka's, as FastStream made it.
        careful: Poll one record at a time, until one that cannot be read has been passed.

    Returns:
        The same consumer.
    """
    poll: Poll = consumer.getmany

    async def getmany(*partitions: Any, **options: Any) -> dict[Any, list[Any]]:
        nonlocal careful
        try:
            while True:
                if careful:
                    found, passed = await _one_by_one(consumer, poll)
                    careful = not passed
                else:
                    found = await poll(*partitions, **options)
                polls.polled()
                admitted = polls.admit([(tp.topic, tp.partition) for tp in found])
                if admitted:
                    return {tp: records for tp, records in found.items() if tp in admitted}
        except Exception as error:
            polls.broken(error)
            raise

    consumer.getmany = getmany
    return consumer


async def _one_by_one(consumer: Any, poll: Poll) -> tuple[dict[Any, list[Any]], bool]:
    """Poll so that a record that cannot be read spoils no other.

    Returns:
        The records, and whether an unreadable one is among them, in its place but without its bytes.
    """
    found: dict[Any, list[Any]] = {}
    passed = False
    for tp in sorted(consumer.assignment()):
        records: list[Any] = []
        try:
            while len(records) < _PIECE and (more := (await poll(tp, timeout_ms=0, max_records=1)).get(tp)):
                records.extend(more)
        except UnicodeDecodeError as error:
            offset = await consumer.position(tp)
            records.append(_unreadable(tp, offset, error))
            consumer.seek(tp, offset + 1)
            passed = True
        if records:
            found[tp] = records
    if not found:
        await asyncio.sleep(_REST)
    return found, passed


def _unreadable(tp: Any, offset: int, error: Exception) -> ConsumerRecord[None, None]:
    reason = f"a header name is no UTF-8 ({error}); the bytes of the record are in the topic"
    return ConsumerRecord(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        timestamp=-1,
        timestamp_type=0,
        key=None,
        value=None,
        checksum=None,
        serialized_key_size=-1,
        serialized_value_size=-1,
        headers=[(UNREADABLE, reason.encode())],
    )
