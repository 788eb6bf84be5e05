"""The shortest way to say something to a server and hear what it kept."""

from __future__ import annotations

import asyncio

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def execute(url: str, *statements: str) -> object:
    """Run statements, each on its own, and return the last one's value."""
    connection = await asyncpg.connect(url)
    try:
        value: object = None
        for statement in statements:
            value = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()


async def make_topic(bootstrap: str, topic: str) -> None:
    """Make a topic of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def send(bootstrap: str, topic: str, value: bytes) -> None:
    """Send one record and wait until the broker has it."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        await asyncio.wait_for(producer.send_and_wait(topic, value), 30)
    finally:
        await producer.stop()


async def first(bootstrap: str, topic: str) -> bytes | None:
    """Return the value of a topic's first record."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{topic}-readers", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), 30)
        value: bytes | None = record.value
        return value
    finally:
        await consumer.stop()
