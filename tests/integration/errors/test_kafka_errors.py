"""What the errors that aiokafka really raises mean; docs/errors.md says the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from milepost.consumers.classify import classify
from milepost.streams.topics import ensure_topics


async def told(call: Awaitable[Any]) -> tuple[str, str]:
    try:
        await call
    except Exception as error:
        found = classify(error, {})
        return found.verdict, found.code
    raise AssertionError("nothing was raised")


@asynccontextmanager
async def producer(kafka: str, **more: Any) -> AsyncIterator[AIOKafkaProducer]:
    found = AIOKafkaProducer(bootstrap_servers=kafka, request_timeout_ms=2_000, **more)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def test_a_broker_that_is_down() -> None:
    async def start() -> None:
        async with producer("127.0.0.1:1"):
            pass

    assert await told(start()) == ("not_sent", "CONNECT_FAILED")


async def test_a_topic_that_is_not_there(kafka: str, topic_prefix: str) -> None:
    async with producer(kafka) as found:
        assert await told(found.send_and_wait(f"{topic_prefix}.nowhere", b"x")) == ("fatal", "TOPIC_MISSING")


async def test_a_record_that_is_too_large(kafka: str, topic_prefix: str) -> None:
    name = f"{topic_prefix}.small"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"max.message.bytes": "1000"})])
    finally:
        await admin.close()
    await ensure_topics(kafka, [name])
    async with producer(kafka) as found:
        assert await told(found.send_and_wait(name, b"x" * 5_000)) == ("fatal", "TOO_LARGE")
        assert await told(found.send_and_wait(name, b"x" * 5_000_000)) == ("fatal", "TOO_LARGE")
