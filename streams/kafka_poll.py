"""How a consumer is polled: what may be handed on, and what a poll that raises leads to; see `kafka.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ..schemas.envelope import Record
from .kafka_lenient import Leniency

#: Milliseconds for which a broker that has no new records keeps a fetch request, the client's own default, and while
#: some partition is paused.
WAIT, WAIT_FOR_OTHERS = 500, 50

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


def limit_waits(consumer: Any) -> None:
    """Have brokers wait for new records only shortly while some partition is not asked for.

    aiokafka has one fetch request under way to a broker. Where one that names no partition with records waits for the
    broker's longest time, a partition that goes on meanwhile waits with it, though its records are there. To be called
    whenever a partition has been paused or goes on.

    Args:
        consumer: aiokafka's.
    """
    consumer._fetcher._fetch_max_wait_ms = WAIT_FOR_OTHERS if consumer.paused() else WAIT
