"""What a member of a consumer group is, without the client that makes it one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from .kafka_poll import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Timing of a group's members.

    Attributes:
        session_timeout: Kafka gives a member's partitions away after this silence.
        max_poll_interval: aiokafka leaves the group when nothing polled for this long.
        metadata_max_age: How often topics are looked at anew: the longest time until an added partition is read.
        start_within: Longest wait for the first assignment.
    """

    session_timeout: timedelta = timedelta(seconds=10)
    max_poll_interval: timedelta = timedelta(minutes=5)
    metadata_max_age: timedelta = timedelta(seconds=30)
    start_within: timedelta = timedelta(seconds=60)


class Rebalances(Protocol):
    """Who is told of assignments; neither method may wait or raise."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours now, all of them newly."""
        ...

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These are ours no longer."""
        ...
