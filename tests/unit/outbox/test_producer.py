"""While Kafka is away the relay speaks for itself, and aiokafka's lines do not fill the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from milepost.outbox.producer import Producer, SendFailed
from milepost.schemas.ids import ManualClock


@pytest.fixture
def client_logger() -> Iterator[logging.Logger]:
    """aiokafka's logger as an application finds it."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.setLevel(before)


async def fail_to_open() -> None:
    producer = Producer("127.0.0.1:1", clock=ManualClock(), delivery_timeout=timedelta(seconds=1))
    with pytest.raises(SendFailed):
        await producer.open()
    await producer.close()


async def test_the_client_is_silent(client_logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    await fail_to_open()
    assert [record.name for record in caplog.records if record.name.startswith("aiokafka")] == []


async def test_an_application_that_wants_its_lines_gets_them(
    client_logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    client_logger.setLevel(logging.ERROR)
    await fail_to_open()
    assert [record for record in caplog.records if record.name.startswith("aiokafka")]
