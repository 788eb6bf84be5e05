"""txoutbox as a relay to Kafka: python txoutbox_relay.py DATABASE_URL KAFKA; runs in the peers' own environment.

Tuned as its documentation allows: large rounds, many keys at once, no idle pause worth mentioning.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import txoutbox
from aiokafka import AIOKafkaProducer
from txoutbox.adapters.postgres import PostgresStorage


async def main(database_url: str, kafka: str) -> None:
    """Relay until killed."""
    storage = await PostgresStorage.connect(database_url)
    await storage.create_schema()
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True)
    await producer.start()

    async def publish(message: Any) -> None:
        await producer.send_and_wait(
            message.topic,
            message.payload,
            key=message.key.encode(),
            headers=[(name, text.encode()) for name, text in message.headers.items()],
        )

    config = txoutbox.RelayConfig(batch_size=1000, concurrency=200, poll_min=0.002, poll_max=0.01)
    print("ready", flush=True)
    await txoutbox.Relay(storage, publish, config=config).run()


asyncio.run(main(*sys.argv[1:]))
