"""How a consumer is polled: what may be handed on, and what a poll that raises leads to; see `kafka.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ..schemas.envelope import Record
from .kafka_lenient import Leniency

Partition: TypeAlias = tuple[str, int]
Poll: TypeAlias = Callable[..., Awaitable[dict[Any, list[Any]]]]


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


def watched(consumer: Any, *, polls: Polls, leniency: Leniency) -> Any:
    """Replace a consumer's `getmany` by one that waits for admitted records and reports what it raises.

    Args:
        consumer: aiokafka's, as FastStream made it.
        leniency: How it parses; told when a record that cannot be read has been passed.

    Returns:
        The same consumer.
    """
    poll: Poll = consumer.getmany

    async def getmany(*partitions: Any, **options: Any) -> dict[Any, list[Any]]:
        try:
            while True:
                found = await poll(*partitions, **options)
                polls.polled()
                leniency.passed(record for records in found.values() for record in records)
                admitted = polls.admit([(tp.topic, tp.partition) for tp in found])
                if admitted:
                    return {tp: records for tp, records in found.items() if tp in admitted}
        except Exception as error:
            polls.broken(error)
            raise

    consumer.getmany = getmany
    return consumer
