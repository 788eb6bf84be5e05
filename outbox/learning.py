"""What the relay learns from batches that the broker refuses, so that no row is tried for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiokafka.errors import InvalidTimestampError, PolicyViolationError, UnknownError

from .catalog import Catalog
from .encode import TopicPartition
from .producer import SendFailed, is_denied, is_too_large
from .records import Batch
from .routing import Routing

#: What a broker says of a record that it will not take; aiokafka has no name for INVALID_RECORD (87), such as one
#: without a key on a compacted topic, and says UnknownError.
_ROWS_FAULT = (InvalidTimestampError, PolicyViolationError, UnknownError)
#: A row that was refused so often, alone in its batch, without a clear reason is put aside.
_TRIES = 3


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
            elif isinstance(error, _ROWS_FAULT):
                learned = self._refused(batch.seqs, error) or learned
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

    def _refused(self, seqs: Sequence[int], error: Exception) -> bool:
        """Try the rows of a refused batch one by one; return whether it was clear that one of them is the reason."""
        if len(seqs) > 1:
            self._routing.alone.update(seqs)
            return True
        (seq,) = seqs
        self._tries[seq] += 1
        if self._tries[seq] < _TRIES:
            return False
        del self._tries[seq]
        words = str(error) or type(error).__name__
        self._routing.unsendable[seq] = "REFUSED", f"the broker refuses this record: {words}"
        return True
