"""What the relay learns from batches that the broker refuses, so that no row is tried for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiokafka.errors import BrokerResponseError, kafka_errors

from .catalog import Catalog
from .encode import TopicPartition
from .producer import SendFailed, is_denied, is_too_large
from .records import Batch
from .routing import Routing

#: The broker will not take this record, such as one without a key on a compacted topic. aiokafka 0.14 has no name for
#: this code and says UnknownError, as it does for a fault of the broker itself, by which no row may be put aside.
INVALID_RECORD: Any = type(
    "InvalidRecordError", (BrokerResponseError,), {"errno": 87, "message": "INVALID_RECORD"}
)
kafka_errors.setdefault(INVALID_RECORD.errno, INVALID_RECORD)


class Learning:
    """Tells the routing which rows go alone, and which not at all.

    Args:
        catalog: Asked for the limit of a topic that has refused a batch as too large.
    """

    def __init__(self, routing: Routing, catalog: Catalog) -> None:
        self._routing = routing
        self._catalog = catalog
        self._tries: Counter[int] = Counter()

    def from_failure(self, failure: SendFailed) -> tuple[bool, set[str]]:
        """Learn.

        Returns:
            Whether a row was the reason, so that there is no trouble with Kafka; and topics that are denied.
        """
        denied = {where[0] for where, _, error in failure.refused if is_denied(error)}
        learned = False
        for where, batch, error in failure.refused:
            if is_too_large(error):
                self._too_large(where, batch)
                learned = True
            elif isinstance(error, INVALID_RECORD):
                self._refused(batch.seqs)
                learned = True
        return learned, denied

    def _too_large(self, where: TopicPartition, batch: Batch) -> None:
        """Ask for the limit anew, and build less; a row that is refused alone after that is put aside."""
        topic, size = where[0], batch.size()
        self._catalog.doubt(topic)
        if len(batch.seqs) > 1:
            self._routing.caps[topic] = max(1, size // 2)
            return
        (seq,) = batch.seqs
        self._tries[seq] += 1
        if self._tries[seq] > 1:
            del self._tries[seq]
            self._routing.unsendable[seq] = (
                "TOO_LARGE",
                f"the record is {size} bytes, more than the broker takes",
            )

    def _refused(self, seqs: Sequence[int]) -> None:
        """Try the rows of a refused batch one by one; one that was alone is put aside."""
        if len(seqs) > 1:
            self._routing.alone.update(seqs)
        else:
            self._routing.unsendable[seqs[0]] = "REFUSED", "the broker refuses this record: INVALID_RECORD"
