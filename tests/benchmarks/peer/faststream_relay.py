"""faststream-outbox as a relay to Kafka: python faststream_relay.py DATABASE_URL KAFKA; in the peers' environment."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

from faststream import Context
from faststream.kafka import KafkaBroker
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine


async def main(database_url: str, kafka: str) -> None:
    """Relay until killed."""
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox")
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    source = OutboxBroker(engine, outbox_table=table, logger=None)
    target = KafkaBroker(kafka, acks="all", enable_idempotence=True, logger=None)
    await target.connect()

    async def relay(message: Annotated[Any, Context()]) -> None:
        headers = dict(message.headers)
        await target.publish(
            message.body, topic=headers.pop("topic"), key=headers.pop("key").encode(), headers=headers
        )

    source.subscriber(
        "bench",
        max_workers=8,
        fetch_batch_size=500,
        min_fetch_interval=0.002,
        max_fetch_interval=0.01,
        terminal_flush_batch_size=100,
    )(relay)
    await source.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
