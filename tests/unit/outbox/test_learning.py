"""What is learned from refused batches: a row is put aside for its own fault, never for the broker's."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiokafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    UnknownError,
    for_code,
)
from milepost.outbox.learning import Learning
from milepost.outbox.producer import SendFailed
from milepost.outbox.records import Batch
from milepost.outbox.routing import Routing


class Doubted:
    """A catalog that notes which topics it is to ask about again."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def doubt(self, topic: str) -> None:
        """Note it."""
        self.topics.append(topic)


def refused(error: Exception, *seqs: int) -> SendFailed:
    """A failure of one batch of these rows, each of about 200 bytes."""
    batch = Batch(0, 10_000)
    for seq in seqs:
        assert batch.add(seq, b"\x01", b"x" * 200, b"\x00")
    return SendFailed("refused", refused=[(("t", 0), batch, error)])


def learning() -> tuple[Learning, Routing, Doubted]:
    routing, catalog = Routing(), Doubted()
    return Learning(routing, cast("Any", catalog)), routing, catalog


def test_a_record_that_is_not_valid() -> None:
    it, routing, _ = learning()
    error = for_code(87)()
    assert it.from_failure(refused(error, 1, 2, 3)) == (True, set())
    assert routing.alone == {1, 2, 3} and not routing.unsendable
    assert it.from_failure(refused(error, 2)) == (True, set())
    assert routing.unsendable[2][0] == "REFUSED"
    routing.settled(2)
    assert routing.alone == {1, 3} and not routing.unsendable


def test_a_batch_that_is_too_large() -> None:
    it, routing, catalog = learning()
    assert it.from_failure(refused(MessageSizeTooLargeError(), *range(10))) == (True, set())
    assert 1000 < routing.caps["t"] < 1300 and catalog.topics == ["t"]
    assert it.from_failure(refused(MessageSizeTooLargeError(), 7))[0]
    assert not routing.unsendable, "the limit is asked for first"
    assert it.from_failure(refused(MessageSizeTooLargeError(), 7))[0]
    assert routing.unsendable[7][0] == "TOO_LARGE"


@pytest.mark.parametrize("error", [UnknownError(), OutOfOrderSequenceNumber(), InvalidTimestampError()])
def test_a_fault_of_the_broker(error: Exception) -> None:
    it, routing, _ = learning()
    for _ in range(10):
        assert it.from_failure(refused(error, 1)) == (False, set())
    assert not routing.unsendable and not routing.alone and not routing.caps


def test_a_topic_that_is_denied() -> None:
    it, routing, _ = learning()
    assert it.from_failure(refused(TopicAuthorizationFailedError(), 1, 2)) == (False, {"t"})
    assert not routing.unsendable and not routing.alone
